"""The command behind `make report`: python -m report. The sweep, quick where there is no GPU; then tables and plots."""

import sys

from report import sweep


def main(argv):
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if gpu is None and "--quick" not in argv:
        print("PyTorch sees no GPU here: a quick sweep on the CPU, to see the tables and plots work", file=sys.stderr)
        argv = [*argv, "--quick"]
    status = sweep.main(argv)
    if status:
        return status
    options = sweep.parse(argv)
    if options.list or options.prepare:  # nothing was measured
        return 0
    from report import benchmarks, plots

    folder = sweep.folder_for(options, gpu if options.device == "cuda" else None)
    which = [] if folder == benchmarks.PUBLISHED else [str(folder)]  # the published one's tables lie in report/
    return benchmarks.main(which) or plots.main(which)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
