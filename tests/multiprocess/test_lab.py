# SPDX-License-Identifier: Apache-2.0
"""Labs: real network namespaces. Skipped, visibly, where these cannot be made."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from braid.lab import Job, Lab, LabError, environments, unavailable
from slowness import asserts_speed, limit
from waiting import eventually

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}"),
]
PYTHON = [sys.executable, "-IS"]


def python(code: str) -> list[str]:
    return [*PYTHON, "-c", textwrap.dedent(code)]


ECHO = """
    import socket
    with socket.create_server(("0.0.0.0", 4711)) as server:
        connection, _ = server.accept()
        count = 0
        while data := connection.recv(1 << 16):
            count += len(data)
    print(count)
"""


def send_to(address: str, count: int, timeout_s: float = 20) -> list[str]:
    return python(f"""
        import socket, time
        for attempt in range(200):
            try:
                connection = socket.create_connection(("{address}", 4711), {timeout_s})
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        connection.sendall(bytes({count}))
    """)


def test_hosts_have_names_addresses_and_each_other() -> None:
    with Lab("2x1gbit,1x100mbit/50mbit") as lab:
        assert [host.call(["hostname"]).strip() for host in lab.hosts] == ["h0", "h1", "h2"]
        spaces = {host.call(["readlink", "/proc/self/ns/ipc"]) for host in lab.hosts}
        assert len(spaces) == 3
        assert str(Path("/proc/self/ns/ipc").readlink()) not in spaces
        server = lab.hosts[2].start(python(ECHO), stdout=subprocess.PIPE, text=True)
        lab.hosts[0].call(send_to(lab.hosts[2].address, 1_000_000))
        assert server.communicate()[0].strip() == "1000000"
        # Headers and acknowledgements come on top, and on a busy machine some of it once more.
        assert 1_000_000 < lab.sent_bytes(lab.hosts[0]) < 1_800_000
        assert 1_000_000 < lab.received_bytes(lab.hosts[2]) < 1_150_000
        assert lab.received_bytes(lab.hosts[1]) < 50_000


def shaped(lab: Lab) -> list[tuple[str, str]]:
    def rate(line: str) -> str:
        words = line.split()
        return words[words.index("rate") + 1]

    return [
        (
            rate(host.call(["tc", "qdisc", "show", "dev", "eth0"])),
            rate(lab._switch.network(["tc", "qdisc", "show", "dev", f"p{number}"])),
        )
        for number, host in enumerate(lab.hosts)
    ]


def test_cards_are_shaped_and_reshaped() -> None:
    with Lab("1gbit,100mbit/50mbit") as lab:
        assert shaped(lab) == [("1Gbit", "1Gbit"), ("100Mbit", "50Mbit")]
        lab.set_rate(lab.hosts[0], 2e8)
        lab.set_rate(lab.hosts[1], 1e8, 1e9)
        assert shaped(lab) == [("200Mbit", "200Mbit"), ("100Mbit", "1Gbit")]
        assert str(lab.hosts[1].spec) == "100mbit/1gbit"


def test_hosts_speak_ordinary_tcp() -> None:
    with Lab("1x100mbit") as lab:
        says = lab.hosts[0].call(["cat", "/proc/sys/net/ipv4/tcp_congestion_control"])
    assert says.strip() in ("cubic", "reno")  # whatever the machine has been set to


def test_a_cut_host_is_silent_until_it_is_mended() -> None:
    ping = python("""
        import socket, sys
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
            ours.settimeout(2)
            ours.sendto(b"x", (sys.argv[1], 4711))
            try:
                print(ours.recv(9).decode())
            except (TimeoutError, OSError):
                print("silence")
    """)
    pong = python("""
        import socket
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
            ours.bind(("0.0.0.0", 4711))
            print(flush=True)
            while True:
                ours.sendto(b"answer", ours.recvfrom(9)[1])
    """)
    with Lab("2x1gbit") as lab:
        server = lab.hosts[1].start(pong, stdout=subprocess.PIPE)
        assert server.stdout is not None
        server.stdout.readline()
        ask = [*ping, lab.hosts[1].address]
        assert lab.hosts[0].call(ask).strip() == "answer"
        lab.cut(lab.hosts[1])
        assert lab.hosts[0].call(ask).strip() == "silence"
        lab.mend(lab.hosts[1])
        answers = [lab.hosts[0].call(ask).strip() for _ in range(5)]
        assert "answer" in answers


def test_a_killed_host_takes_its_processes_along() -> None:
    with Lab("2x1gbit") as lab:
        victim = lab.hosts[1].start(["sleep", "100"])
        other = lab.hosts[0].start(["sleep", "100"])
        lab.kill(lab.hosts[1])
        assert victim.wait(limit(10)) != 0
        assert not lab.hosts[1].alive
        assert other.poll() is None
        with pytest.raises(LabError, match="h1 was killed"):
            lab.hosts[1].start(["true"])
    assert other.wait(limit(10)) != 0


@pytest.mark.alone
@pytest.mark.timing
def test_a_limited_processor_is_limited() -> None:
    busy = python("""
        import os, time
        began = time.monotonic()
        while time.monotonic() < began + 1: pass
        print(os.times().user + os.times().system)
    """)
    with Lab("1gbit@25%") as lab:
        limited_s = float(lab.hosts[0].call(busy))
        lab.set_cpu(lab.hosts[0], 1)
        free_s = float(lab.hosts[0].call(busy))
    # Beside other work a host that is not limited gets no more either.
    assert limited_s < 0.7 * free_s or not asserts_speed()


def test_labs_do_not_meet_and_end_with_their_block() -> None:
    with Lab("2x1gbit") as one, Lab("2x1gbit") as other:
        assert one.hosts[1].address == other.hosts[1].address
        server = one.hosts[1].start(python(ECHO))
        with pytest.raises(LabError, match="Error"):
            other.hosts[0].call(
                python(f"import socket; socket.create_connection(({one.hosts[1].address!r}, 4711), 1)")
            )
    assert server.wait(limit(10)) != 0


def test_a_killed_owner_leaves_nothing() -> None:
    code = """
        import sys, time
        from braid.lab import Lab
        lab = Lab("2x1gbit")
        lab.hosts[0].start(["sleep", "1000"])
        print(*[host._space.pid for host in lab.hosts], flush=True)
        time.sleep(1000)
    """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    holders = [int(word) for word in owner.stdout.readline().split()]
    assert len(holders) == 2
    assert all(Path(f"/proc/{pid}").exists() for pid in holders)
    owner.kill()
    owner.wait()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in holders), "the end of namespaces", 10)


def test_ranks_are_placed_host_by_host_or_in_turn() -> None:
    with Lab("3x1gbit") as lab:
        blocks = environments(lab, [2, 0, 1])
        assert [(host.name, env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) for host, env in blocks] == [
            ("h0", "0", "2"),
            ("h0", "1", "2"),
            ("h2", "0", "1"),
        ]
        turns = environments(lab, [2, 1, 1], round_robin=True)
        assert [host.name for host, _ in turns] == ["h0", "h1", "h2", "h0"]
        assert [env["RANK"] for _, env in turns] == ["0", "1", "2", "3"]
        assert {env["MASTER_ADDR"] for _, env in turns} == {lab.hosts[0].address}
        assert all("TORCHELASTIC_RUN_ID" in env for _, env in turns)  # by which frameworks know a launcher
        for wrong in ([1], [1, 1, -1], [0, 0, 0]):
            with pytest.raises(LabError, match="places no ranks"):
                environments(lab, wrong)


def test_a_command_starts_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Lab("1gbit") as lab:
        assert lab.hosts[0].call(["pwd"]).strip() == str(tmp_path)
        with pytest.raises(LabError, match="no-such-program: No such file"):
            lab.hosts[0].call(["no-such-program"])


def test_a_job_ends_with_its_failures() -> None:
    with Lab("2x1gbit") as lab:
        places = environments(lab, [1, 1])
        with Job(places, ["sh", "-c", "exit $RANK"]) as job:
            assert job.wait() == [0, 1]
        with Job(places, ["sleep", "100"]) as job:
            with pytest.raises(TimeoutError, match="rank 0, 1 still runs"):
                job.wait(0.2)
            job.signal(signal.SIGTERM)
            assert all(code != 0 for code in job.wait(limit(10)))


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="takes root"):
        Lab("1gbit")
