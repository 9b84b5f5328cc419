# SPDX-License-Identifier: MIT
"""A network error names the interface that was taken, and the two ends of the connection."""

from __future__ import annotations

import pytest

from .outputs import ids, run

NCCL = "gpu01:4711:4720 [0] "
REFUSED = NCCL + "misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to {}<56849> returned"
REFUSED += " 111(Connection refused) errno 115(Operation now in progress)\n"
ROUTE = "socketProgressOpt: Connect to 10.0.0.4<41000> failed : No route to host\n"


def bootstrap(interface: str, address: str = "10.0.0.1") -> str:
    return f"{NCCL}NCCL INFO Bootstrap : Using {interface}:{address}<0>\n"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        # NCCL
        (
            bootstrap("docker0", "172.17.0.1") + REFUSED.format("172.17.0.2"),
            "docker0 (172.17.0.1)",
        ),
        (bootstrap("virbr0", "192.168.122.1") + REFUSED.format("192.168.122.1"), "virbr0 "),
        (bootstrap("lo", "127.0.0.1") + REFUSED.format("127.0.0.1"), "lo (127.0.0.1) is the loop"),
        (bootstrap("br-0123456789ab") + REFUSED.format("10.0.0.4"), "a bridge of Docker"),
        (bootstrap("tailscale0", "100.64.0.3") + REFUSED.format("100.64.0.4"), "of a VPN"),
        (bootstrap("flannel.1", "10.244.1.0") + REFUSED.format("10.244.2.0"), "a pod network"),
        (bootstrap("eth0") + REFUSED.format("10.0.0.4"), "the interface taken is eth0 (10.0.0.1)"),
        (
            NCCL
            + "NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0> [1]eth0:10.0.0.1<0>\n"
            + REFUSED.format("172.17.0.2"),
            "docker0 (172.17.0.1) is a bridge of Docker",
        ),
        (
            NCCL
            + "NCCL INFO NCCL_SOCKET_IFNAME set by environment to =lo\n"
            + REFUSED.format("10.0.0.4"),
            "lo is the loopback",
        ),
        # gloo and PyTorch
        (
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:799]"
            " connect [127.0.1.1]:3210: Connection refused\n",
            "127.0.1.1 is an address of the loopback",
        ),
        (
            "[W socket.cpp:663] [c10d] The client socket has failed to connect to"
            " [localhost.localdomain]:29500 (errno: 111 - Connection refused).\n"
            "export GLOO_SOCKET_IFNAME=wg0\n",
            "wg0 is a tunnel of a VPN",
        ),
        # Open MPI
        (
            "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This\n"
            "should not happen.\n\n  Local host: n02\n  PID:        4711\n"
            "  Message:    connect() to 172.17.0.1:1026 failed\n"
            "  Error:      Connection refused (111)\n",
            "172.17.0.1 is an address of a bridge of Docker",
        ),
        (
            "[n02:04711] btl: tcp: attempting to connect() to address 10.1.0.4 on port 1024"
            " via virbr0\n"
            "[n02][[1,1],3][btl_tcp_endpoint.c:730:mca_btl_tcp_endpoint_start_connect]"
            " from n02 to: n01 Unable to connect to the peer 10.1.0.4 on port 1024:"
            " No route to host\n",
            "virbr0 is a bridge for virtual machines",
        ),
        # UCX
        (
            "[1700000000.1] [n02:4711:0]          tcp_ep.c:1000 UCX  ERROR"
            " connect(fd=31, dest_addr=192.168.122.1:41289) failed: Connection refused\n",
            "192.168.122.1 is an address of a bridge for virtual machines",
        ),
        # MPICH
        (
            "+ mpiexec -iface docker0 -n 4 ./app\n"
            '[proxy:0:1@n2] HYDU_sock_connect (lib/utils/sock.c:145): unable to connect from "n2"'
            ' to "n1" (No route to host)\n',
            "docker0 is a bridge of Docker",
        ),
    ],
)
def test_interface(text: str, summary: str) -> None:
    found = run(text)
    assert ids(found) == {"peer-unreachable"}
    assert summary in found.causes[0].summary


def test_no_interface_is_invented() -> None:
    found = run(NCCL + "misc/socket.cc:9 NCCL WARN " + ROUTE)
    assert found.causes[0].summary.endswith("No route to host")


UCX_LOG = "[gpu01:4711:0:4711] ib_mlx5_log.c:171  "


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (
            NCCL + "transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12,"
            " opcode 1, len 0, vendor err 129\n",
            "from gpu01 to a peer that is not shown",
        ),
        (
            NCCL + "transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer"
            " 10.0.0.4<41234> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid"
            " fe80::1 remoteGids fe80::2 hca mlx5_0\n",
            "from gpu01 (mlx5_0, GID fe80::1) to 10.0.0.4 (GID fe80::2)",
        ),
        (
            UCX_LOG + "Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd"
            " 0/0)\n"
            + UCX_LOG
            + "RC QP 0x9b08 wqe[44]: SEND s-e [rqpn 0x9b11 rlid 12] [inl len 26]\n",
            "from gpu01 (mlx5_0:1, QP 0x9b08) to LID 12 (QP 0x9b11)",
        ),
        (
            UCX_LOG
            + "Transport retry count exceeded on mlx5_2:1/RoCE (synd 0x15 vend 0x81)\n"
            + UCX_LOG
            + "RC QP 0x11e wqe[0]: SEND --e [rqpn 0x11f dgid ::ffff:10.0.0.2 tc 106]\n",
            "from gpu01 (mlx5_2:1, QP 0x11e) to GID ::ffff:10.0.0.2 (QP 0x11f)",
        ),
        (
            "The InfiniBand retry count between two MPI processes has been\n"
            'exceeded.  "Retry count" is defined in the InfiniBand spec 1.2\n'
            "(section 12.7.38):\n\n    The total number of times that the sender wishes the\n"
            "receiver to retry.\n" + "\n" * 18 + "  Local host:   n01\n  Local device: mlx4_0\n"
            "  Peer host:    n02\n",
            "from n01 (mlx4_0) to n02",
        ),
        (
            "[[5,1],0][btl_openib_component.c:3492:handle_wc] from n01 to: n02 error polling LP CQ"
            " with status RETRY EXCEEDED ERROR status number 12 for wr_id 1a\n",
            "from n01 to n02",
        ),
        (
            " local address: LID 0x12 QPN 0x0a31 PSN 0x3f01c2\n"
            " remote address: LID 0x17 QPN 0x0a2c PSN 0x9d11aa\n"
            " #bytes     #iterations    BW peak[MB/sec]\n"
            " Completion with error at client\n"
            " Failed status 12: wr_id 0 syndrom 0x81\n",
            "from LID 0x12 (QP 0x0a31) to LID 0x17 (QP 0x0a2c)",
        ),
        (
            NCCL + "ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed"
            " out, on dev mlx5_4:1, curr state INIT, next state RTR, local GID index 3, local GID"
            " ::ffff:10.1.5.1, remote GID ::ffff:10.1.6.9\n",
            "from gpu01 (mlx5_4:1, GID ::ffff:10.1.5.1) to GID ::ffff:10.1.6.9",
        ),
        (
            "[1.0] [gpu01:4711:0] ib_device.c:1332 UCX  ERROR ibv_create_ah(dlid=49152 sl=0 port=1"
            " src_path_bits=0 dgid=::ffff:10.0.0.2 flow_label=0xffffffff sgid_index=3"
            " traffic_class=106) for RC DEVX QP connect on mlx5_0 failed: Connection timed out\n",
            "from gpu01 (mlx5_0) to GID ::ffff:10.0.0.2",
        ),
        (
            "libfabric:4711:1::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message:"
            " Unresponsive receiver. My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id:"
            " i-0aa Peer EFA addr: fi_addr_efa://[fe80::2]:0:2 Peer host id: i-0bb\n",
            "from i-0aa (GID fe80::1) to i-0bb (GID fe80::2)",
        ),
    ],
)
def test_endpoints(text: str, ends: str) -> None:
    found = run(text)
    assert ids(found) == {"fabric-timeout"}
    assert found.causes[0].summary.endswith(ends)
