"""Runs bridges over the nodes that links.sh made, and compares what was measured, counted and predicted.

usage: links.py BUILD ID NET MBITS WORK [OUT]. A line per bridge, way and direction:
  ms          median of the rounds; faster: the time of direct over it
  predicted   the larger of two times: what `lierne plan --links` says of the busiest rank (leader: nothing),
              and the bytes of the busiest node over its link
  counted     payload on all links over the bytes between nodes that `lierne plan` reports, of all executions
              together: bytes of the interfaces without 66 bytes of headers per packet (Ethernet 14, IP 20,
              TCP 32)
Failed is a line whose result is wrong, whose counted bytes differ by more than 1 %, whose time is
more than 20 % away from what was predicted (but for leader), or which is not as much faster than direct as it must be."""
import csv
import json
import os
import subprocess
import sys

ROUNDS = 3
HEADERS = 66
PACKET = 1514  # bytes on the link, of which 1448 are payload
NEAR = "1000,2000"  # ns and MB/s between ranks of a node: shared memory of this machine
FAR_NS = 300000
LEADING = "leader"

# File, bridge, ranks per node (None: as in the file), how much faster than direct balanced must be forward.
BRIDGES = [
    ("qwen3.5-vl-27b-mimo-17", "images_to_language", None, 3.0),
    ("llava-vicuna7b-clip-8", "tp4_both", 4, 3.0),
    ("llava-vicuna7b-clip-8", "tp4_llm_dp4_vision", 4, 3.0),
    ("llava-vicuna7b-clip-8", "tp2_dp2_both", 4, 1.5),
    ("encoder-llm-8", "vision_to_llm", 2, 0.0),
]


class Network:
    """Two connections per pair of ranks (btl_tcp_links): with one, what a rank answers to the begin of a message
    waits in the connection behind all that the rank itself sends, so that two ranks take turns."""
    def __init__(self, build, id_, net, mbits, work):
        self.build, self.id, self.net, self.work = build, id_, net, work
        self.bytes_per_second = mbits * 1e6 / 8 * (PACKET - HEADERS) / PACKET

    def counted(self):
        """Payload that all nodes have sent so far."""
        total = 0
        for name in os.listdir("/sys/class/net"):
            if name.startswith(self.id + "d") and name != self.id + "d":
                read = lambda what: int(open(f"/sys/class/net/{name}/statistics/{what}").read())
                total += read("rx_bytes") - HEADERS * read("rx_packets")
        return total

    def mpirun(self, nodes):
        hosts = ",".join(f"10.{self.net}.1.{n + 1}:{nodes.count(n)}" for n in sorted(set(nodes)))
        settings = {"plm_rsh_agent": self.work + "/agent", "plm_rsh_no_tree_spawn": "1",
                    "oob_tcp_if_include": f"10.{self.net}.1.0/24", "btl": "self,vader,tcp",
                    "btl_tcp_if_include": f"10.{self.net}.2.0/24", "btl_tcp_links": "2", "pml": "ob1",
                    "mpi_yield_when_idle": "1", "btl_base_warn_component_unused": "0"}
        command = [os.environ.get("MPIRUN", "mpirun"), "-n", str(len(nodes)), "--host", hosts,
                   "--map-by", "slot", "--bind-to", "none", "-x", "LIERNE_TIMEOUT_MS=300000"]
        for name, value in settings.items():
            command += ["--mca", name, value]
        return command

    def run(self, nodes, *arguments):
        command = self.mpirun(nodes) + [os.path.abspath(self.build) + "/lierne", "run", *arguments,
                                        "--format", "json", "--rounds", str(ROUNDS), "--warmup", "0"]
        before = self.counted()
        result = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if result.returncode != 0:
            return None, result.stdout + result.stderr
        return json.loads(result.stdout), (self.counted() - before) / (ROUNDS + 1)


def plan(network, *arguments):
    far = f"{FAR_NS},{round(network.bytes_per_second / 1e6)}"
    command = [network.build + "/lierne", "plan", *arguments, "--links", f"{NEAR},{far}", "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True)
    return json.loads(result.stdout)["report"] if result.returncode == 0 else None


def configure(network, name, per_node):
    """The file with the nodes, and the node of each rank."""
    with open(f"grids/{name}.json", encoding="utf-8") as file:
        config = json.load(file)
    config.pop("$schema", None)
    config["nodes"] = per_node or config["nodes"]
    path = f"{network.work}/{name}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return path, [rank // config["nodes"] for rank in range(config["world_size"])]


def predicted(network, report, times, direction, way):
    mine = report[direction]
    most = max(mine["max_node_sent_bytes"], mine["max_node_received_bytes"])
    rank = times[direction].get(way + "_ns", 0) / 1e6
    return max(rank, 1e3 * most / network.bytes_per_second)


def measure(network, name, bridge, per_node, faster):
    path, nodes = configure(network, name, per_node)
    times = plan(network, path, "-b", bridge, "-a", "direct")
    lines, direct, good = [], {}, True
    for way in ("direct", "balanced", LEADING):
        options = [path, "-b", bridge] + (["-a", way] if way == LEADING else ["-a", "direct", "--routing", way])
        report = plan(network, *options)
        if report is None:
            continue  # not defined for these grids
        result, counted = network.run(nodes, *options)
        if result is None:
            print(f"FAIL {bridge} {way}: {counted.strip()}", file=sys.stderr)
            return lines, False
        method = next(iter(result["algorithms"].values()))
        reported = sum(report[d]["between_nodes_bytes"] for d in ("forward", "adjoint"))
        for d in ("forward", "adjoint"):
            ms = method["times"][d]["median_us"] / 1e3
            direct.setdefault(d, ms)
            expected = predicted(network, report, times, d, way)
            line = {"grid": name, "bridge": bridge, "ranks": len(nodes), "nodes": len(set(nodes)), "way": way,
                    "direction": d, "between_mb": round(report[d]["between_nodes_bytes"] / 1e6, 2),
                    "ms": round(ms, 1), "predicted_ms": round(expected, 1),
                    "over_predicted": round(ms / expected, 3) if expected else "",
                    "faster": round(direct[d] / ms, 2), "counted": round(counted / reported, 4) if reported else ""}
            enough = way != "balanced" or d != "forward" or direct[d] / ms >= faster
            near = not reported or (abs(counted / reported - 1) <= 0.01 and (way == LEADING or not expected or abs(ms / expected - 1) <= 0.2))
            ok = method["right"] and enough and near
            good &= ok
            line["verdict"] = "ok" if ok else "FAIL"
            lines.append(line)
            print(" ".join(f"{line[k]:>{w}}" for k, w in WIDTHS.items()), flush=True)
    return lines, good


WIDTHS = {"grid": 24, "bridge": 20, "ranks": 5, "nodes": 5, "way": 9, "direction": 9, "between_mb": 10, "ms": 9,
          "predicted_ms": 12, "over_predicted": 14, "faster": 6, "counted": 8, "verdict": 7}


def main():
    build, id_, net, mbits, work = sys.argv[1:6]
    network = Network(build, id_, net, int(mbits), work)
    print(f"nodes with links of {mbits} Mbit/s in each direction, {network.bytes_per_second / 1e6:.2f} MB/s of payload")
    print(" ".join(f"{k:>{w}}" for k, w in WIDTHS.items()))
    lines, passed = [], 0
    wanted = os.environ.get("LINKS_ONLY", "")
    bridges = [b for b in BRIDGES if wanted in b[1]]
    for bridge in bridges:
        more, good = measure(network, *bridge)
        lines += more
        passed += good
    if len(sys.argv) > 6:
        with open(sys.argv[6], "w", newline="", encoding="utf-8") as file:
            file.write("# make bench-links\n")
            writer = csv.DictWriter(file, list(WIDTHS), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    print(f"{passed} passed, {len(bridges) - passed} failed")
    sys.exit(0 if passed == len(bridges) else 1)


main()
