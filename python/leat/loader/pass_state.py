"""LoaderPass: one pass over the data, shared by its iterator and the loader's state_dict().

A pass is an epoch, or the rest of one whose state was loaded.
"""

from leat.loader.device_mover import DeviceMover


class LoaderPass:
    """
    epoch          its number
    skip           batches that were consumed before the state was saved
    batches        batches consumed so far, `skip` included
    start          the same in samples of the order: of all ranks, if they share the data
    order          what the order of an index sampler or an iterable dataset depends on, see
                   DataLoader._leat_order_facts()
    rng_states     states of torch's generators before the order was drawn; None: not drawn yet
    engine_state   state of the engine when it last worked on this pass, as a tuple
    engine         the engine that works on this pass, if leat makes the order
    sampler_state  state of a batch sampler that has one (BucketSampler) when the pass begins
    sampler_pass   the pass of that batch sampler
    mover          moves batches to loader.device, or None
    counters       the loader's LoaderCounters
    ended          the consumer has got StopIteration
    """

    def __init__(self, state, counters, order, device=None):
        self.epoch = state["epoch"]
        self.skip = state["batches"]
        self.batches = self.skip
        self.start = state["samples"]
        self.order = order
        if self.skip and state["order"] is not None:
            self.order = {**order, "seed": state["order"]["seed"]}
        self._step = self._total = None
        self.rng_states = state["random"]
        self.engine_state = state["engine"] and tuple(state["engine"])
        self.engine = None
        self.sampler_state = state.get("sampler")
        self.sampler_pass = None
        self.mover = None if device is None else DeviceMover(device)
        self.counters = counters
        self.ended = False

    def release_engine(self):
        """Keeps the engine's state: the engine is about to work on another pass."""
        if self.engine is not None:
            self.engine_state = self.engine.state() or self.engine_state
            self.engine = None

    def count_samples(self, step, total):
        """A batch of all ranks has `step` samples; there are `total` (None: unknown)."""
        self._step, self._total = step, total

    def _samples(self):
        if self._step is None:
            return self.start
        samples = self.start + (self.batches - self.skip) * self._step
        return samples if self._total is None else min(samples, self._total)

    def state(self):
        sampler = self.sampler_state
        if self.sampler_pass is not None:
            sampler = self.sampler_pass.state(self.batches - self.skip, self.ended)
        if self.ended:
            return {**fresh_state(self.epoch + 1), "sampler": sampler}
        engine = (self.engine and self.engine.state()) or self.engine_state
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "samples": self._samples(),
            "random": self.rng_states,
            "engine": engine,
            "sampler": sampler,
            "order": None if engine else self.order,
        }


def fresh_state(epoch):
    return {
        "epoch": epoch,
        "batches": 0,
        "samples": 0,
        "random": None,
        "engine": None,
        "sampler": None,
        "order": None,
    }
