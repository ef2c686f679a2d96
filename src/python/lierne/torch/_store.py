"""Planning over the key-value store that torch.distributed already has: no group, no collective.

Agreements are all-gathers of a few bytes and happen when plans are made; tensors never pass here."""
import time

from lierne.oob import Calls


class StoreCalls(Calls):
    """lierne.oob.Calls over a c10d store. A rank's keys are deleted once everybody has read them: that
    is when everybody has written the next ones."""

    messages = True

    def __init__(self, store, rank, nranks):
        self.store, self.rank, self.nranks = store, rank, nranks
        self.gathers, self.counts = 0, {}

    def allgather(self, mine, everyone):
        self.gathers += 1
        self.store.set(f"g{self.gathers}/{self.rank}", mine)
        return self._gathered, self.gathers, everyone

    def _gathered(self, number, everyone):
        keys = [f"g{number}/{rank}" for rank in range(self.nranks)]
        if not self.store.check(keys):
            return False
        everyone[:] = b"".join(self.store.get(key) for key in keys)
        if number > 1:
            self.store.delete_key(f"g{number - 1}/{self.rank}")
        return True

    def _key(self, sender, receiver, tag):
        pair = sender, receiver, tag
        self.counts[pair] = self.counts.get(pair, 0) + 1
        return f"m{sender}/{receiver}/{tag}/{self.counts[pair]}"

    def send(self, data, to, tag):
        self.store.set(self._key(self.rank, to, tag), data)

    def receive(self, buffer, source, tag):
        return self._received, self._key(source, self.rank, tag), buffer

    def _received(self, key, buffer):
        if not self.store.check([key]):
            return False
        buffer[:] = self.store.get(key)
        self.store.delete_key(key)
        return True

    def test(self, request):
        function, key, buffer = request
        if function(key, buffer):
            return True
        time.sleep(2e-4)  # every test is a round trip to the store, which serves all ranks
        return False
