"""Every cell is registered with its facts; names are unique, and a wrong one is answered with the nearest."""

import inspect

import pytest
from cases import Case, every_name

import recurra as rc
from recurra.cells import canonical_names, find
from recurra.cells.options import COMMON, OF_CELL, meaning
from recurra.compare.plan import resolve_cells
from recurra.errors import InputError, UnknownNameError
from recurra.named_layers import cell_options  # pyrefly: ignore

ZOO = {
    "rnn",
    "jordan_rnn",
    "identity_rnn",
    "irnn",
    "orthogonal_rnn",
    "unitary_rnn",
    "residual_rnn",
    "rin",
    "delay_rnn",
    "leaky_rnn",
    "temporal_kernel_rnn",
    "scrn",
    "focused_rnn",
    "lstm",
    "vanilla_lstm",
    "original_lstm",
    "full_gate_lstm",
    "projection_lstm",
    "slope_lstm",
    "dynamic_cortex_memory",
    "lstm_nig",
    "lstm_nfg",
    "lstm_nog",
    "lstm_niaf",
    "lstm_noaf",
    "lstm_np",
    "lstm_cifg",
    "gru",
    "mut1",
    "mut2",
    "mut3",
    "mgu",
    "mgu1",
    "mgu2",
    "mgu3",
    "indrnn",
    "min_gru",
    "min_lstm",
    "slstm",
    "cornn",
    "antisymmetric_rnn",
    "lem",
    "ugrnn",
    "janet",
    *("cfn", "ran", "minimal_rnn", "li_gru", "atr", "sgrn", "star", "light_ru", "fast_rnn", "fast_grnn", "miru1"),
    *("miru2", "t_rnn", "t_gru", "t_lstm", "sgu", "dsgu", "multiplicative_rnn", "multiplicative_lstm"),
    *("mogrifier_lstm", "brc", "nbrc", "residual_lstm", "mc_lstm_working_memory", "memory_controller_lstm"),
    *("nested_lstm", "nas", "intersection_rnn", "elstm", "unicornn", "tau_gru", "clockwork", "rhn"),
    *("fast_slow_lstm", "ltc", "cfc", "ode_rnn", "gru_d", "phased_lstm", "lmu", "ea_lstm", "mass_conserving_lstm"),
    *("lif", "recurrent_lif", "parametric_lif", "adaptive_lif", "synaptic", "alpha", "izhikevich", "srm"),
    *("ctrnn", "low_rank_rnn", "plrnn", "shallow_plrnn", "dendritic_plrnn", "al_rnn", "block_gru", "conv_lstm"),
    *("sru", "qrnn", "hgrn", "rg_lru", "gateloop", "lru", "s5", "s4d", "mamba"),
    *("linear_transformer", "delta_net", "gated_delta_net", "mlstm", "retention", "gla", "rwkv6", "rwkv7"),
    *("fast_weights",),
}


def test_the_zoo_is_complete():
    assert set(canonical_names()) >= ZOO


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("lstm_fgr", "full_gate_lstm"),
        ("peephole_lstm", "vanilla_lstm"),
        ("urnn", "unitary_rnn"),
        ("lstmp", "projection_lstm"),
        ("dcm", "dynamic_cortex_memory"),
        ("elman", "rnn"),
        ("jordan", "jordan_rnn"),
    ],
)
def test_two_names_of_one_cell(alias: str, name: str):
    assert find(alias) is find(name)
    assert name in canonical_names()
    assert alias not in canonical_names()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("brnn", "bidirectional=True"),
        ("bidirectional_lstm", "bidirectional=True"),
        ("BRNN", "bidirectional=True"),
        ("esn", "rc.EchoStateNetwork"),
        ("narx", "rc.NARX"),
        ("tdnn", "rc.TDNN"),
        ("elmo", "rc.ELMo"),
        ("seq2seq", "rc.models.EncoderDecoder"),
    ],
)
def test_a_name_of_something_else_leads_there(name: str, answer: str):
    for looked_up in (lambda: find(name), lambda: resolve_cells(name)):
        with pytest.raises(UnknownNameError, match=answer):
            looked_up()


@every_name
def test_a_cell_states_its_facts(case: Case):
    cell_class = rc.registry()[case.name]
    summary = inspect.cleandoc(cell_class.__dict__["__doc__"]).splitlines()
    assert len(summary) == 1
    assert summary[0].endswith(".")
    assert len(cell_class.paper) > 20
    assert 1980 <= cell_class.year <= 2026


@every_name
def test_a_cell_needs_two_sizes_and_no_more(case: Case):
    cell = rc.registry()[case.name](5, 6)
    assert (cell.input_size, cell.hidden_size) == (5, 6)
    assert issubclass(type(cell), rc.Cell)
    roles = {name for name, _ in cell.named_children()}
    assert set(cell.keep) | set(cell.write) <= roles
    assert cell.memory is None or cell.memory in cell.states


@pytest.mark.parametrize("hidden_size", [1, 2, 3, 7])
def test_a_cell_takes_every_pair_of_sizes(hidden_size: int):
    for kind in rc.registry().values():
        cell = kind(2, hidden_size)
        assert (cell.input_size, cell.hidden_size) == (2, hidden_size)


def test_the_registry_is_read_only():
    with pytest.raises(TypeError):
        rc.registry()["mine"] = rc.Cell


def test_a_name_is_registered_once():
    with pytest.raises(InputError, match="name: got 'lstm', expected a new name; LSTM has this one"):

        @rc.register("lstm")
        class Impostor(rc.Cell):
            """Takes a name that is taken."""

    assert rc.registry()["lstm"].__name__ == "LSTM"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("lsmt", "lstm"), ("leaky", "leaky_rnn"), ("vanila_lstm", "vanilla_lstm"), ("min-gru", "min_gru")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, near: str):
    with pytest.raises(UnknownNameError, match=f"cell: got '{wrong}', expected one of .*; did you mean '{near}'"):
        find(wrong)


def test_a_name_like_none_is_answered_with_the_list():
    with pytest.raises(UnknownNameError, match=r"one of adaptive_lif, .*antisymmetric_rnn, .*vanilla_lstm"):
        find("qqqqqqqq")


@pytest.mark.parametrize(
    ("name", "options", "argument"),
    [
        ("rnn", {"nonlinearity": "thanh"}, "nonlinearity"),
        ("rnn", {"nonlinearity": 3}, "nonlinearity"),
        ("jordan_rnn", {"decay": 1.0}, "decay"),
        ("jordan_rnn", {"output_size": 0}, "output_size"),
        ("rin", {"transitions": 0}, "transitions"),
        ("delay_rnn", {"delays": ()}, "delays"),
        ("delay_rnn", {"delays": (0, 1)}, "delays"),
        ("delay_rnn", {"delays": (2, 2)}, "delays"),
        ("leaky_rnn", {"tau": 0.5}, "tau"),
        ("temporal_kernel_rnn", {"decay": 1.0}, "decay"),
        ("focused_rnn", {"decay": 0.0}, "decay"),
        ("scrn", {"alpha": 1.5}, "alpha"),
        ("scrn", {"alpha": 1.0, "adaptive": True}, "alpha"),
        ("scrn", {"context": "next"}, "context"),
        ("original_lstm", {"squash": "relu"}, "squash"),
        ("original_lstm", {"block_size": 3}, "block_size"),
        ("projection_lstm", {"proj_size": 0}, "proj_size"),
        ("projection_lstm", {"cell_clip": 0.0}, "cell_clip"),
        ("projection_lstm", {"proj_clip": -1.0}, "proj_clip"),
        ("slope_lstm", {"per": "layer"}, "per"),
        ("slstm", {"heads": 3}, "heads"),
        ("slstm", {"forget": "tanh"}, "forget"),
        ("indrnn", {"longest": 0}, "longest"),
        ("janet", {"longest": 1.0}, "longest"),
        ("fast_grnn", {"rank": 5}, "rank"),
        ("miru1", {"update": 1.5}, "update"),
        ("mogrifier_lstm", {"rounds": -1}, "rounds"),
        ("elstm", {"longest": 0}, "longest"),
        ("tau_gru", {"delay": 0}, "delay"),
        ("clockwork", {"periods": (2, 1)}, "periods"),
        ("rhn", {"transitions": 0}, "transitions"),
        ("ctrnn", {"dt": 200.0}, "dt"),
        ("ctrnn", {"excitatory": 1.5}, "excitatory"),
        ("ctrnn", {"density": 0.0}, "density"),
        ("ctrnn", {"noise": -1.0}, "noise"),
        ("low_rank_rnn", {"rank": 0}, "rank"),
        ("al_rnn", {"rectified": 5}, "rectified"),
        ("block_gru", {"blocks": 3}, "blocks"),
        ("delta_net", {"heads": 3}, "heads"),
        ("mlstm", {"key_size": 0}, "key_size"),
        ("retention", {"key_size": 3}, "key_size"),
        ("gla", {"rank": 0}, "rank"),
        ("gla", {"temperature": 0.0}, "temperature"),
        ("rwkv7", {"rank": 0}, "rank"),
        ("fast_weights", {"loops": 0}, "loops"),
        ("fast_weights", {"decay": 1.5}, "decay"),
        ("conv_lstm", {"height": 2}, "input_size"),
        ("conv_lstm", {"kernel": 2}, "kernel"),
        ("fast_slow_lstm", {"fast": 1}, "fast"),
        ("cfc", {"input_size": 1, "timed": True}, "input_size"),
        ("lmu", {"theta": 0.0}, "theta"),
        ("phased_lstm", {"ratio": 0.0}, "ratio"),
        ("ea_lstm", {"static": 3}, "static"),
        ("mass_conserving_lstm", {"mass": 4}, "mass"),
        ("lif", {"beta": 1.0}, "beta"),
        ("lif", {"reset": "half"}, "reset"),
        ("lif", {"refractory": -1}, "refractory"),
        ("lif", {"surrogate": "step"}, "surrogate"),
        ("alpha", {"alpha": 0.5}, "alpha"),
        ("parametric_lif", {"tau": 1.0}, "tau"),
        ("rnn", {"hidden_size": 0}, "hidden_size"),
        ("rnn", {"hidden_size": 2.5}, "hidden_size"),
        ("rnn", {"input_size": -1}, "input_size"),
        ("rnn", {"input_size": True}, "input_size"),
    ],
)
def test_a_bad_option_is_named(name: str, options: dict, argument: str):
    with pytest.raises(InputError, match=rf"^{argument}: got "):
        rc.registry()[name](**{"input_size": 3, "hidden_size": 4, **options})


def test_every_option_of_a_cell_is_explained():
    kinds = [rc.registry()[name] for name in canonical_names()]
    options = {(kind, each.name) for kind in kinds if issubclass(kind, rc.Cell) for each in cell_options(kind)}
    built_in = {(kind, name) for kind, name in options if kind.__module__.startswith("recurra.cells.")}
    assert not [(kind.__name__, name) for kind, name in built_in if not meaning(kind, name)]
    known = {(kind.__name__, name) for kind, name in built_in}
    assert {(kind, name) for kind, of in OF_CELL.items() for name in of} <= known
    assert set(COMMON) <= {name for _, name in built_in}
    assert "the larger, the slower the memory fades. Default `16.0`" in rc.GatedLinearAttention.__doc__
