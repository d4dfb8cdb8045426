"""Inside the child, without a GPU: what a file written for one needs in order to run in the interpreter."""


def take_first_config():
    """Let triton.autotune take the first of its configs: there is nothing to time, and no driver to time it with."""
    from triton.runtime.autotuner import Autotuner

    def every_config_is_alike(kernel_call, quantiles=None):
        return [1.0, 1.0, 1.0]

    Autotuner.do_bench = property(lambda self: every_config_is_alike)
