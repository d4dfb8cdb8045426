"""Grades every submission of the tests at one commit, and compares what came of two commits, case by case.

python -m grader.tests.submissions.compare_verdicts collect OUT.json --checkout FOLDER: grades all honest and dishonest
files, every known mistake and the solutions, on the CPU, by the command of that checkout. What is graded is of the
checkout in which this file lies, so that two commits are asked the same. It goes on where it stopped.
python -m grader.tests.submissions.compare_verdicts compare BEFORE.json AFTER.json: prints each case whose aspect,
outcome or points differ; exit status 0 where none does.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from grader.tests.support import EVERY, ROOT, honest, solution

COMPARED = ("aspect", "outcome", "points")
ABSENT = {"aspect": "-", "outcome": "absent", "points": "-", "sentence": ""}
# The command of a checkout, for one problem after the other, none of which may take ten minutes. What it draws anew
# each time is drawn alike at all commits, and nobody looks at its page.
PROGRAM = """
import secrets, signal, sys, zlib
secrets.choice = lambda names: names[zlib.crc32(repr(names).encode()) % len(names)]
secrets.randbelow = lambda most: 20_260_501 % most
sys.modules["jinja2"] = None
import grader.__main__ as command
grade = ["grade"] if hasattr(command, "COMMANDS") else []  # older commits had one command
folder, problems, *more = sys.argv[1:]
for problem in problems.split(","):
    signal.alarm(600)
    command.main([*grade, "--submission", folder, "--problems", problem, "--out", f"{folder}/out-{problem}", *more])
    print("graded", problem, flush=True)
"""


def corpus(words):
    """{name: (problem, text of its module, that text's fingerprint)} of the entries with these words in their name."""
    from grader.tests.submissions.corpus import BROKEN, DISHONEST, HONEST, cheating, source_of

    entries = {f"solution/{id}": (id, solution(id)) for id in EVERY}
    entries |= {f"honest/{name}": (name[:2], honest(name)) for name in HONEST}
    entries |= {f"broken/{name}": (mistake.problem, source_of(mistake)) for name, mistake in BROKEN.items()}
    entries |= {f"dishonest/{name}": (name[:2], cheating(name)) for name in DISHONEST}
    chosen = {name: entry for name, entry in entries.items() if words.lower() in name.lower()}
    return {name: (id, text, hashlib.sha256(text.encode()).hexdigest()[:16]) for name, (id, text) in chosen.items()}


def batches(entries):
    """Lists of names that are graded together, one of each problem; who cheats is alone."""
    waiting, alone = {}, []
    for name, (problem, *_) in entries.items():
        (alone if name.startswith("dishonest/") else waiting.setdefault(problem, [])).append(name)
    return [list(filter(None, names)) for names in itertools.zip_longest(*waiting.values())] + [[n] for n in alone]


def grade(names, entries, checkout, more, keep):
    """Grade these entries in one folder by one command; `keep` is given each as soon as it is graded."""
    left, said, started = {entries[name][0]: name for name in names}, collections.deque(maxlen=8), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        os.chmod(folder, 0o755)  # a child is another user where root grades
        for problem, name in left.items():
            Path(folder, EVERY[problem].module).write_text(entries[name][1], encoding="utf-8")
        command = [sys.executable, "-c", PROGRAM, folder, ",".join(left), *more]
        process = subprocess.Popen(command, cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout)}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")  # fmt: skip
        for line in process.stdout:
            said.append(line)
            problem = line.removeprefix("graded ").strip()
            results = Path(folder, f"out-{problem}", "results.json")
            if problem in left and results.is_file():
                keep(
                    left.pop(problem),
                    time.monotonic() - started,
                    cases_of(json.loads(results.read_text(encoding="utf-8"))),
                )
                started = time.monotonic()
        status = process.wait()
    if left:
        print(f"no verdict on {', '.join(left.values())}, exit status {status}:\n{''.join(said)}", flush=True)


def cases_of(document):
    """{case: what came of it} of a results.json; the sentence has its evidence and its question with it."""
    cases = {}
    for test in document["tests"]:
        facts, lines = test["extra_data"], test["output"].splitlines()[1:]
        said = itertools.takewhile(lambda line: not line.startswith(("again: ", "printed:")), lines)
        case = {"points": f"{test['score']} of {test['max_score']}", "sentence": " ".join(said)}
        name = facts["case"] if facts["case"] not in cases else f"{facts['case']} ({facts['aspect']})"
        cases[name] = {"aspect": facts["aspect"], "outcome": facts["outcome"], **case}
    return cases


def collect(options):
    checkout, entries, lock, started = options.checkout.resolve(), corpus(options.only), threading.Lock(), time.time()
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip() or "no commit"
    more = ["--device", "cpu"] + ([] if options.compile else ["--no-compile"])
    of = " ".join([commit, *more])
    known = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {"of": of, "entries": {}}
    if known["of"] != of:
        sys.exit(f"{options.out} is of {known['of']}, not of {of}: name another file")
    done = known["entries"]
    left = {name: entry for name, entry in entries.items() if done.get(name, {}).get("text") != entry[2]}
    print(f"{of}: {len(entries)} entries, {len(left)} of them to be graded", flush=True)

    def keep(name, seconds, cases):
        with lock:
            done[name] = {"text": left.pop(name)[2], "seconds": round(seconds, 1), "cases": cases}
            part = options.out.with_name(options.out.name + ".part")
            part.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
            part.replace(options.out)
            found = collections.Counter(case["outcome"] for case in cases.values())
            said = ", ".join(f"{number} {outcome}" for outcome, number in found.items())
            print(f"[{len(entries) - len(left)}/{len(entries)}] {name}: {said}; {seconds:.1f} s", flush=True)

    try:
        pool = concurrent.futures.ThreadPoolExecutor(options.lanes)
        list(pool.map(lambda names: grade(names, entries, checkout, more, keep), batches(left)))
    except KeyboardInterrupt:
        os._exit(130)  # the threads that wait for commands have nothing more to do
    print(f"{len(entries) - len(left)} entries in {options.out}, {len(left)} lack; {time.time() - started:.0f} s")
    return 1 if left else 0


def compare(options):
    """Print what differs; the exit status."""
    before, after = (json.loads(path.read_text("utf-8")) for path in (options.before, options.after))
    old, new, same, different = before["entries"], after["entries"], 0, 0
    for entry in [entry for entry in old if entry in new]:
        for case in dict.fromkeys([*old[entry]["cases"], *new[entry]["cases"]]):
            was, now = (known[entry]["cases"].get(case, ABSENT) for known in (old, new))
            if all(was[part] == now[part] for part in COMPARED):
                same += 1
                continue
            different += 1
            print(f"\n{entry}: {case}")
            for when, what in (("before", was), ("after ", now)):
                print(f"  {when}  {', '.join(what[part] for part in COMPARED)}: {what['sentence']}")
    odd = [f"only in {'BEFORE' if name in old else 'AFTER'}: {name}" for name in sorted(old.keys() ^ new.keys())]
    odd += [f"other text: {name}" for name in old if name in new and old[name]["text"] != new[name]["text"]]
    print("", *odd, f"{before['of']} -> {after['of']}: {len(old)} and {len(new)} entries", sep="\n")
    print(f"cases: {same} same, {different} differ")
    return 1 if different or odd else 0


def main(argv=None):
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("collect", help="grade all entries at one commit")
    one.add_argument("out", type=Path, metavar="OUT.json")
    one.add_argument("--checkout", type=Path, default=ROOT, metavar="FOLDER", help="whose grader grades")
    one.add_argument("--only", default="", metavar="WORDS", help="only entries with these words in their name")
    one.add_argument("--lanes", type=int, default=2, help="commands at a time (default: 2)")
    one.add_argument("--compile", action="store_true", help="the compile checks too, which are slow")
    two = commands.add_parser("compare", help="compare two collections")
    two.add_argument("before", type=Path, metavar="BEFORE.json")
    two.add_argument("after", type=Path, metavar="AFTER.json")
    options = parser.parse_args(argv)
    return collect(options) if options.what == "collect" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
