"""The warps of a program: threads of which one runs at a time, and which goes on is drawn."""

import random
import threading
from types import SimpleNamespace

NOW = threading.local()  # of a thread: its Worker, and its Turns
PROGRAM = SimpleNamespace(place=(0, 0, 0), grid=(1, 1, 1), barriers={}, unfenced=False)  # the one that runs


class Stuck(Exception):
    """No thread of a program can go on, or a barrier was used against its rules."""


class Worker:
    """A partition of warps: its products and stores that are under way, and what it has written without a fence."""

    def __init__(self, name):
        self.name, self.turn, self.ready, self.waits_for = name, threading.Semaphore(0), lambda: True, ""
        self.products, self.stores, self.unfenced = [], [], set()
        self.done = False


class Turns:
    """Runs functions in threads, one at a time; a thread gives its turn away at each barrier."""

    def __init__(self, seed):
        self.draw, self.failure, self.over = random.Random(seed), None, threading.Semaphore(0)

    def run(self, calls):
        self.workers = [Worker(f"{function.__name__}{numbers(given)}") for function, given in calls]
        for worker, (function, given) in zip(self.workers, calls, strict=True):
            threading.Thread(target=self.work, args=(worker, function, given), daemon=True).start()
        self.give()
        self.over.acquire()
        if self.failure:
            raise self.failure

    def work(self, worker, function, given):
        NOW.worker, NOW.turns = worker, self
        worker.turn.acquire()
        try:
            if not self.failure:
                function(*given)
                if worker.products or worker.stores:
                    raise Stuck(f"{worker.name} ends while a product or a store is under way")
        except BaseException as failure:
            self.failure = self.failure or failure
        worker.done = True
        self.give()

    def give(self):
        """The turn to one that can go on; to all where something has failed; back where all are done."""
        waiting = [worker for worker in self.workers if not worker.done]
        if not waiting:
            self.over.release()
            return
        try:
            for each in PROGRAM.barriers.values():
                if each.under_way and self.draw.random() < 1 / 4:
                    each.land()
            ready = [worker for worker in waiting if worker.ready()]
            if not ready:
                raise Stuck("; ".join(f"{worker.name} waits for {worker.waits_for}" for worker in waiting))
        except Stuck as failure:
            self.failure = self.failure or failure
        self.draw.choice(waiting if self.failure else ready).turn.release()

    def wait(self, ready, what):
        worker = NOW.worker
        worker.ready, worker.waits_for = ready, what
        self.give()
        worker.turn.acquire()
        if self.failure:
            raise self.failure


def numbers(given):
    return "".join(f" {each}" for each in given if isinstance(each, int))


def pause():
    """Others may go on first."""
    NOW.turns.wait(lambda: True, "")
