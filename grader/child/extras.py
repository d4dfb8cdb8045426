"""Inside the child: what the labs ask for beside q, k and v, and what they tell of a call."""

import lists
import orders


class Nothing:
    """Of a problem of the ladder: nothing more.

    What a lab has in its place: `arguments`, more of them by name; `watchers` of the trace, {address of a storage:
    function(program, byte offsets into it) at each load}; and `report(out, trace)`, plain data to add to the reply.
    """

    def __init__(self):
        self.arguments, self.watchers = {}, {}

    def report(self, out, trace):
        return {}


def of(request, tensors, allocations, device):
    """What a request for a call asks beside the ladder's."""
    if "lists" in request:
        return lists.Given(request, allocations, device)
    if "like" in request:
        return orders.Like(request, tensors)
    return Nothing()


JOBS = {"build": lists.build, "order": orders.order}
