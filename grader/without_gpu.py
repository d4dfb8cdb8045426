"""Inside the child, without a GPU: what a file written for one needs in order to run in the interpreter."""


def take_first_config():
    """Let triton.autotune take the first of its configs: there is nothing to time, and no driver to time it with."""
    from triton.runtime.autotuner import Autotuner

    def every_config_is_alike(kernel_call, quantiles=None):
        return [1.0, 1.0, 1.0]

    Autotuner.do_bench = property(lambda self: every_config_is_alike)


def index_with_scalars():
    """Let a scalar of the interpreter be a loop bound under numpy 2.5, which no longer makes an int of a 1-D array.

    triton 3.7 does this by itself; course images hold 3.6.
    """
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, *scope):
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    interpreter._patch_lang_tensor = patch_tensor_and_index
