"""Grades a class once undisturbed and once killed with SIGKILL at random moments, and compares the gradebooks.

python -m classroom.tests.kill_and_resume FOLDER --size 60 --kills 5 --out OUT: prints the figures; exit status 0
where both runs gave the same lines of gradebook.csv. --hostile puts the ten of hostile.py into the class that is
killed, and the others are compared. The undisturbed run, once finished, is not done again.
"""

import argparse
import csv
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from classroom.local import ROOT
from classroom.tests import hostile, synthetic


def command(folder, out, options):
    asked = ["--seed", "0", "--device", "cpu", "--lanes", str(options.lanes), "--roster", f"{folder}-roster.csv"]
    asked += ["--problems", options.problems] if options.problems else []
    return [sys.executable, "-m", "classroom", str(folder), "--out", str(out), *asked]


def disturbed(folder, out, options, seconds):
    """Kill the command's process group at random moments, each within its share of `seconds`; then let it finish."""
    draw, killed = random.Random(options.seed), 0
    for number in range(options.kills):
        before = results(out)
        process = subprocess.Popen(command(folder, out, options), cwd=ROOT, start_new_session=True)
        wait = draw.uniform(0.2, 1.8) * seconds / (options.kills + 1)
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
        print(f"killed {killed} after {wait:.1f} s: {len(results(out))} results on the disk", flush=True)
        if not before <= results(out):
            sys.exit(f"results were lost at number {number}")
    subprocess.run(command(folder, out, options), cwd=ROOT)
    return killed


def results(out):
    return {path.name for path in (out / "results").glob("*.msgpack.gz")}


def rows(out):
    """{student: line of the gradebook}, remarks apart."""
    with (out / "gradebook.csv").open(newline="", encoding="utf-8-sig") as file:
        known = {row.pop("student"): row for row in csv.DictReader(file)}
    return {id: {k: v for k, v in row.items() if k != "remarks"} for id, row in known.items()}


def main(argv=None):
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.split(".")[0])
    parser.add_argument("folder", type=Path, help="where the class is made")
    parser.add_argument("--out", type=Path, required=True, help="where both runs go")
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", default="", help="like 1-4 (default: the seven)")
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args(argv)
    folder, options.out = options.folder.resolve(), options.out.resolve()
    if not folder.exists():
        synthetic.make(folder, options.size, options.seed)
    whole, killed, stamp = options.out / "undisturbed", options.out / "killed", options.out / "seconds"
    options.out.mkdir(parents=True, exist_ok=True)
    if not stamp.exists():
        started = time.monotonic()
        subprocess.run(command(folder, whole, options), cwd=ROOT, check=True)
        stamp.write_text(f"{time.monotonic() - started}", "utf-8")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cores = (used.ru_utime + used.ru_stime) / max(1, options.size)
        seconds = float(stamp.read_text("utf-8"))
        print(f"undisturbed: {seconds:.0f} s, {cores:.1f} core-seconds for each submission", flush=True)
    if options.hostile:
        given = folder.with_name(f"{folder.name}-and-ten")
        shutil.copytree(folder, given, dirs_exist_ok=True)
        shutil.copy(f"{folder}-roster.csv", f"{given}-roster.csv")
        hostile.make(given)
        folder = given
    kills = disturbed(folder, killed, options, float(stamp.read_text("utf-8")))
    known, found = rows(whole), rows(killed)
    same = known == {id: found.get(id) for id in known}
    print(f"killed {kills} times and resumed: {'the same gradebook' if same else 'NOT THE SAME'}")
    print("the ten:", {id: row["total"] or row["status"] for id, row in found.items() if id not in known})
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
