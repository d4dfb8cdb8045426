"""Grades a class once undisturbed and once killed with SIGKILL at random moments, and compares what comes out.

With --hostile the ten of hostile.py are in the class that is killed, and the others are compared.

python -m grader.tests.classroom.kill_and_resume FOLDER --size 60 --kills 5 --out OUT: prints the figures; exit status 0
where both runs gave the same verdicts and the same rows of gradebook.csv. --quick takes a stand-in for the grader. The
undisturbed run, once finished, is not done again.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from grader.classroom import journal, names
from grader.classroom.local import ROOT
from grader.tests.classroom import hostile, synthetic


def command(folder, out, options):
    module = "grader.tests.classroom.quick_class" if options.quick else "grader.classroom"
    asked = ["--seed", "0", *([] if options.quick else ["--device", "cpu"])]
    problems = "1-3" if options.quick else options.problems
    asked += ["--problems", problems] if problems else []
    given = [str(folder), "--out", str(out), "--lanes", str(options.lanes), "--roster", str(roster_of(folder))]
    return [sys.executable, "-m", module, *given, *asked]


def roster_of(folder):
    return folder.with_name(folder.name + "-roster.csv")


def undisturbed(folder, out, options):
    """Grade in one go; the seconds that it took."""
    started = time.monotonic()
    subprocess.run(command(folder, out, options), cwd=ROOT, check=True)
    return time.monotonic() - started


def disturbed(folder, out, options, seconds):
    """Kill the command's process group at random moments, each within its share of `seconds`; then let it finish."""
    draw, lost = random.Random(options.seed), 0
    for number in range(options.kills):
        before = records(out)
        process = subprocess.Popen(command(folder, out, options), cwd=ROOT, start_new_session=True)
        left = seconds * (1 - before / max(1, options.expected))
        wait = draw.uniform(0.1, 1.9) * left / (options.kills - number + 1)
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            lost += 1
        kept = records(out)
        print(f"killed {lost} after {wait:.1f} s: {kept} records on the disk, {before} before", flush=True)
        if kept < before:
            sys.exit("grades were lost")
    started = time.monotonic()
    subprocess.run(command(folder, out, options), cwd=ROOT, check=True)
    print(f"its last run took {time.monotonic() - started:.0f} s")
    return lost


def records(out):
    path = out / journal.JOURNAL
    return path.read_bytes().count(b"\n") if path.exists() else 0


def find_others(out, strangers):
    """[((submission, problem), record)] without those of the hostile ten, whose titles are `strangers`."""
    known = journal.read(out)
    theirs = {row.id for row in known.submissions if row.title in strangers}
    return [(pair, record) for pair, record in sorted(known.records.items()) if pair[0] not in theirs]


def verdicts(records):
    """Outcomes and points of every case. Their sentences may differ: where a loop hangs is seen at some moment."""
    return [(pair, record.status, record.earned, [(r["case"], r["outcome"], r["earned"]) for r in record.results])
            for pair, record in records]  # fmt: skip


def sentences(records):
    return [(pair, r["case"], r["sentence"], r["printed"]) for pair, record in records for r in record.results]


def rows(out, ids):
    """The lines of gradebook.csv of these submissions."""
    path = out / "gradebook.csv"
    lines = path.read_text(encoding="utf-8-sig").splitlines() if path.exists() else []
    return [line for line in lines if ids & set(line.split(","))]


def figures(out):
    """What a class cost: core-seconds for a submission, and the parent's memory."""
    known = journal.read(out)
    cost = [sum(r.core_seconds for r in known.find_records(row).values()) for row in known.submissions if row.handed_in]
    cost.sort()
    again = sum(record.attempts > 1 for record in known.records.values())
    print(f"{len(cost)} submissions: median {cost[len(cost) // 2]:.1f} core-seconds, 90th percentile "
          f"{cost[len(cost) * 9 // 10]:.1f}, most {cost[-1]:.1f}, {sum(cost) / 3600:.2f} core-hours in all; "
          f"{again} records after another attempt")  # fmt: skip


def main(argv=None):
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.split(".")[0])
    parser.add_argument("folder", type=Path, help="where the class is made")
    parser.add_argument("--out", type=Path, required=True, help="where both runs go")
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", default="", help="like 1-4 (default: the seven)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args(argv)
    options.folder, options.out = options.folder.resolve(), options.out.resolve()
    if not options.folder.exists():
        synthetic.make(options.folder, options.size, options.seed)
    whole, killed = options.out / "undisturbed", options.out / "killed"
    stamp = options.out / "seconds"
    options.out.mkdir(parents=True, exist_ok=True)
    if not stamp.exists():
        stamp.write_text(str(undisturbed(options.folder, whole, options)))
    seconds, options.expected = float(stamp.read_text()), records(whole)
    given, strangers = options.folder, set()
    if options.hostile:
        given = options.folder.with_name(options.folder.name + "-and-ten")
        shutil.copytree(options.folder, given, dirs_exist_ok=True)
        shutil.copy(roster_of(options.folder), roster_of(given))
        strangers = {names.find_owner(name, {}, names.PLAIN)[0].title for name in hostile.make(given)}
    kills = disturbed(given, killed, options, seconds)
    figures(whole)
    one, other = (find_others(out, strangers) for out in (whole, killed))
    same, ids = verdicts(one) == verdicts(other), {pair[0] for pair, _ in one}
    equal = rows(whole, ids) == rows(killed, ids)
    said = {(True, True): "the same verdicts and the same rows", (True, False): "the same verdicts"}
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"undisturbed {seconds:.0f} s; killed {kills} times and resumed: {said.get((same, equal), 'NOT THE SAME')}")
    differ = sum(a != b for a, b in zip(sentences(one), sentences(other), strict=True))
    print(f"{differ} of {len(sentences(one))} cases have other words in their sentence or output")
    print(f"{records(killed) - records(whole)} records more in the journal; largest process {most} MB")
    return 0 if same and equal else 1


if __name__ == "__main__":
    sys.exit(main())
