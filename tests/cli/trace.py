"""Checks a trace as a viewer reads it: the bars of one track nest, and both ends of every arrow lie in
bars. Times are compared as they are written, and must be such that no double changes them."""
import collections
import decimal
import json
import sys


def check(events):
    """Returns the bars of every track, (begin, end), the outermost first."""
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            assert e["dur"] >= 0 and e["ts"] == decimal.Decimal(repr(float(e["ts"]))), e
            tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for track, bars in tracks.items():
        bars.sort(key=lambda bar: (bar[0], -bar[1]))
        around = []
        for bar in bars:
            while around and around[-1][1] <= bar[0]:
                around.pop()
            assert not around or bar[1] <= around[-1][1], (track, around[-1], bar)
            around.append(bar)
    for e in events:
        if e["ph"] in "sf":
            bars = tracks[e["pid"], e["tid"]]
            assert any(begin <= e["ts"] < end or begin == e["ts"] == end for begin, end in bars), e
    return tracks


if __name__ == "__main__":
    tracks = check(json.load(open(sys.argv[1]), parse_float=decimal.Decimal, parse_int=decimal.Decimal))
    assert tracks, "no bars"
    earliest = min(begin for bars in tracks.values() for begin, _ in bars)
    assert 0 <= earliest < 60e6, f"{earliest} us do not count from the begin of the job"
