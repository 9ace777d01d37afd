"""What `rc.explain` says that bounds a kernel on a card."""

import re

import pytest
import torch

import recurra as rc
from recurra.engine.gpu.cost import StepCost, step_cost
from recurra.engine.gpu.describe import limits_of_a_step
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.plan.planner import plan
from recurra.engine.traced_step import trace_in_clean_context

pytest.importorskip("triton")
BATCH, UNITS, PROCESSORS = 5, 32, 132


def cost_of(name: str, backward: bool, train: bool) -> StepCost:
    cell = rc.layer(name, 6, UNITS).cell_list[0]
    made = GpuExecutor(plan(cell, trace_in_clean_context(cell), train=train, needs_x=train), torch.bfloat16)
    loop = made.loops.find(backward, BATCH, False, torch.device("cpu"))
    chosen = made.loops.backward_schedule if backward else made.loops.forward_schedule
    return step_cost(loop, chosen, made.plan, 2, BATCH, PROCESSORS)


@pytest.mark.parametrize(
    ("name", "backward", "train", "rows"),
    [
        ("rnn", False, False, 1 + 1),  # the product with x; h
        ("rnn", True, True, 1 + 1 + 1),  # the cotangent of h, h, the cotangent of the sum
        ("lstm", False, False, 4 + 1),  # four gates with x; h, while c stays in registers
        ("lstm", False, True, 4 + 2 + 4),  # c and the gates are kept
        ("lstm", True, True, 1 + 1 + 4 + 4),  # cotangent of h, c, the gates, and their cotangents
    ],
)
def test_bytes_of_a_step_are_those_counted_by_hand(name: str, backward: bool, train: bool, rows: int):
    assert cost_of(name, backward, train).memory == rows * UNITS * BATCH * 2


def test_programs_read_the_state_of_each_other():
    assert cost_of("rnn", False, False).exchanged == UNITS * BATCH * 2  # one program: all of h, once
    assert cost_of("indrnn", False, False).exchanged == 0  # nothing is multiplied


def test_the_share_of_the_memory_is_said_where_its_rate_is_known():
    cost = StepCost(memory=4_800_000, exchanged=0, cycles=4000)
    assert limits_of_a_step(cost, 4.8e12, 2e9) == [
        "    a step moves 4,800,000 bytes of device memory: at least 1.00 µs, 50% of the 2.00 µs estimated"
    ]
    assert limits_of_a_step(cost, 0.0, 2e9) == ["    a step moves 4,800,000 bytes of device memory"]


@pytest.mark.gpu
def test_registers_and_bytes_are_said_on_a_card_before_and_after_a_call():
    layer = rc.LSTM(64, 256).cuda().bfloat16()
    x = torch.randn(8, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    text = rc.explain(layer, x)
    counts = [int(n) for n in re.findall(r"(\d+) registers of 255 per thread", text)]
    assert len(counts) == 2  # forward and backward
    assert all(16 <= n <= 255 for n in counts)
    assert len(re.findall(r"a step moves [\d,]+ bytes of device memory: at least [\d.]+ µs, \d+%", text)) == 2
    layer(x)[0].sum().backward()
    assert rc.explain(layer, x) == text
