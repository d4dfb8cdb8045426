"""One problem: each case's way from the request to its result, then what is judged of the problem as a whole."""

import contextlib
import functools
import importlib.util
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from grader import failures
from grader.core.sandbox.child import ChildFailed
from grader.core.sandbox.texts import clean
from grader.course.problem import COMPILES, WORK
from grader.engine import aspects, cross_case
from grader.engine.case_grader import RIGHT, CaseGrader
from grader.gpu import speed
from grader.result import Aspect, Outcome, Verdict

LANES = range(2, 9)  # how many processes compile and run a problem's cases for a GPU; each takes some of its memory
FEW_OTHERS = 6  # cases that are judged beside the one that was asked for, where its cause is certain


class ProblemGrader:
    """Grades one problem; `results` has what is known. cores: that this problem has, for what runs beside its cases."""

    def __init__(self, request, problem, on_case, folder=None, on_look=lambda problem, words: None, cores=1):
        self.request, self.problem, self.on_case, self.on_look, self.results = request, problem, on_case, on_look, []
        self.kind, self.cores, self.beside = problem.kind, cores, {}
        self.path = (folder or request.submission) / problem.module
        self.in_machine = CaseGrader(request, problem, self.path, "cpu")
        on_gpu = min(max(cores, LANES[0]), LANES[-1]) if request.device == "cuda" else 0
        self.on_gpu = [CaseGrader(request, problem, self.path, "cuda") for _ in range(on_gpu)]

    def run(self):
        """All but the speed."""
        cases = self.request.cases(self.problem)
        given = self.cannot_run()
        if not given:
            for grader in (self.in_machine, *self.on_gpu[:1]):
                grader.submission.begin()
            if self.on_gpu and self.is_timed():
                self.begin("host", speed.host_time, self.problem, self.kind, self.path)
        try:
            found = self.run_cases(cases, given)
            self.results = [found[case.name] for case in cases]
            results, self.outcomes = self.results[:], [result.outcome for result in self.results]
            with failures.harmless("the search for causes"):
                cross_case.find_all(self.results, {case.name: case for case in cases}, self.kind.order)
            self.explain(*self.with_others(cases))
        finally:
            self.close()
        if self.request.judges_work(self.problem):
            judged = self.kind.long_case(cases) or cases[0]
            self.judge(replace(judged, name=WORK), Aspect.WORK, aspects.judge_work, self.problem, results)
        if self.request.compiles(self.problem):
            case = self.kind.compiled_case(self.problem, COMPILES)
            self.judge(case, Aspect.COMPILE, self.compiled, given)

    def compiled(self, given):
        """The Verdict on the kernels' compiling, which may have begun beside the cases."""
        if begun := self.beside.get("compiled"):
            return begun.result()
        return aspects.compile_kernels(self.request, self.problem, self.path, given, self.outcomes)

    def speed(self):
        about = self.request, self.problem, self.path, self.outcomes, self.beside.get("host")
        self.judge(self.problem.speed_case, Aspect.SPEED, aspects.judge_speed, *about)

    def is_timed(self):
        """True where its speed is asked for, too."""
        return self.problem.speed_case and self.request.names is None

    def judge(self, case, aspect, judge, *about):
        """Keep the result of what is judged of the problem as a whole: judge(*about) gives the Verdict."""
        started = time.perf_counter()
        result = self.in_machine.result(case, judge(*about), aspect)
        result.seconds = time.perf_counter() - started
        self.results.append(result)
        self.on_case(self.problem, result.case)

    def cannot_run(self):
        """The Verdict where nothing of this problem can run, else None."""
        module, here = self.problem.module, self.path.is_file()
        if (self.request.submission / module).is_symlink() and not here:
            sentence = f"{module} is a link, and none is followed: put the file there."
        elif not here:
            sentence = f"There is no {module} in {clean(str(self.request.submission))}."
        elif self.problem.uses_triton and importlib.util.find_spec("triton") is None:
            sentence = "Triton is not installed; it has wheels for Linux only. See docs/students.md, 'Without Linux'."
        else:
            return None
        return Verdict(Outcome.NOT_RUN, sentence)

    def begin_compiling(self, result):
        """Compile beside the other cases, once one is right."""
        wanted = self.cores > 1 and self.request.compiles(self.problem) and "compiled" not in self.beside
        if wanted and result.outcome is Outcome.PASSED:
            about = self.request, self.problem, self.path, None, [result.outcome]
            self.begin("compiled", aspects.compile_kernels, *about)

    def begin(self, what, work, *about):
        """Have work(*about) done beside the cases: its future is self.beside[what]."""
        pool = ThreadPoolExecutor(1)
        self.beside[what] = pool.submit(work, *about)
        pool.shutdown(wait=False)

    def close(self):
        """End the processes of the submission."""
        for grader in (self.in_machine, *self.on_gpu):
            grader.runs.close()

    # The cases, each by itself ---------------------------------------------------------------------------------------

    def run_cases(self, cases, given):
        """{name of a case: its Result}. A GPU runs its own cases beside the machine, and of those that are compiled
        alike the first that the machine finds right. given: the Verdict that holds for all, or None.
        """
        found, begun, has_gpu = {}, {}, not given and self.request.device == "cuda"
        here = [case for case in cases if given or not case.gpu]
        with ThreadPoolExecutor(len(self.on_gpu) or 1) as pool, self.in_machine.runs.looking_ahead(here):

            def begin(alike, case):
                if has_gpu and case.fits_gpu and alike not in begun:
                    begun[alike] = case, pool.submit(self.grade_on_gpu, case)

            for case in (case for case in cases if case.gpu):
                begin(case.name, case)
            for case in here:
                found[case.name] = result = self.in_machine.graded(case, given)
                self.on_case(self.problem, case.name)
                self.begin_compiling(result)
                if result.outcome in RIGHT:
                    begin(self.kind.compiled_alike(case), case)
            for case, graded in begun.values():
                if case.gpu or graded.result().outcome is not Outcome.PASSED:
                    found[case.name] = graded.result()
                self.on_case(self.problem, case.name) if case.gpu else None
        return found

    def grade_on_gpu(self, case):
        """The Result, by the first of the GPU's graders that is free; each compiles in a process of its own."""
        grader = self.on_gpu.pop(0)
        result = grader.graded(case)
        self.on_gpu.append(grader)
        return result

    # The cases together ----------------------------------------------------------------------------------------------

    def with_others(self, cases):
        """(cases, results) to be explained together: one case alone is to say what it says among all.

        A certain cause needs few others, which show whether it is chance.
        """
        if not self.request.hear_others or not any(result.diagnosis for result in self.results):
            return cases, self.results
        known = {result.case: result for result in self.results}
        every = replace(self.request, names=None).cases(self.problem)
        every = sorted(every, key=self.kind.size)[:FEW_OTHERS] if is_certain(self.results) else every
        every = [case for case in dict.fromkeys([*every, *cases]) if case.name in known or not case.gpu]
        with self.in_machine.runs.looking_ahead([case for case in every if case.name not in known]):
            return every, [known.get(case.name) or self.in_machine.without_doubt(case) for case in every]

    def explain(self, cases, results):
        """Say why cases are wrong, when all of them are known: one pass, one sentence for each."""
        by_name, seed = {case.name: case for case in cases}, self.request.seed
        confirmed = False
        with failures.harmless("the comparison of cases"):
            self.kind.check_cases(self.problem, by_name, seed, results)
            confirmed = True
        for result in () if confirmed else results:
            if result.diagnosis:
                result.diagnosis.causes = []
        if self.request.hints and any(result.diagnosis for result in results) and not is_certain(results):
            with failures.harmless("the closer look"), contextlib.suppress(ChildFailed):
                show = functools.partial(self.on_look, self.problem)
                self.kind.look_closer(self.problem, by_name, seed, results, self.in_machine.submission, show)
        cross_case.follow_pointers(results)
        for result in results:
            if diagnosis := result.diagnosis:
                result.sentence, result.facts = diagnosis.sentence, diagnosis.add_to(result.facts)
                result.diagnosis = None


def is_certain(results):
    """True where one cause alone explains at least half of what is wrong: nothing more is tried out."""
    named = [result.diagnosis.named for result in results if result.diagnosis]
    alone = Counter(causes[0].kind for causes in named if len(causes) == 1 and not causes[0].general)
    return 2 * max(alone.values(), default=0) >= max(1, len(named))
