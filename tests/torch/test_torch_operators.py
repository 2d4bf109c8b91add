"""The operators of PyTorch that everything is made of: registered as PyTorch wants it, compiled without a break,
exported, cast automatically, and safe whatever they are given."""

import copy

import pytest
import torch

import poolgrad
import poolgrad.torch as pt
from poolgrad.backends.torch import geometry, ops
from poolgrad.errors import InvalidArgument, PoolgradError
from poolgrad.torch import arguments, fractional

FORMATS = [torch.contiguous_format, torch.channels_last]


def geometries(x):
    return {
        "regular": arguments.regular("test", x, 2, 3, 2, 1, 1, True),
        "divided": arguments.regular("test", x, 2, 3, 2, 1, 1, False, "padded"),
        "adaptive": arguments.adaptive("test", x, 2, 3),
        "drawn": fractional.drawn("test", x, 2, None, 3, None, None, 5, True, False),
    }


def calls(x, geometry):
    """Every operator with arguments that fit."""
    y, choice = ops.maximum_and_choice(x.detach(), geometry, "propagate")
    g = torch.randn_like(y).requires_grad_(x.requires_grad)
    v = torch.randn_like(x).requires_grad_(x.requires_grad)
    index = ops.choice_to_index(choice, geometry, "spatial")
    return [
        (ops.mean, (x, geometry)),
        (ops.spread, (g, geometry)),
        (ops.take, (v, choice, geometry)),
        (ops.put, (g, choice, geometry)),
        (ops.maximum, (x, geometry, "first", "propagate")),
        (ops.maximum, (x, geometry, "split", "ignore")),
        (ops.maximum_and_choice, (x, geometry, "propagate")),
        (ops.max_take, (v, x.detach(), None, geometry, "first", "propagate")),
        (ops.max_put, (g, x.detach(), y, geometry, "all", "propagate")),
        (ops.choice_to_index, (choice, geometry, "spatial")),
        (ops.index_take, (v, index, geometry, "spatial")),
        (ops.index_put, (g, index, geometry, "spatial")),
    ]


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("kind", ["regular", "divided", "adaptive", "drawn"])
def test_opcheck(kind, memory_format, device):
    """Schemas, fake tensors (shapes, dtypes and strides), autograd registration, tracing with symbolic sizes."""
    x = torch.randn(2, 3, 6, 5, device=device).contiguous(memory_format=memory_format).requires_grad_()
    for operator, args in calls(x, geometries(x)[kind]):
        tests = ("test_schema", "test_autograd_registration", "test_faketensor")
        if kind == "regular":
            tests += ("test_aot_dispatch_dynamic",)
        torch.library.opcheck(operator.op, args, test_utils=tests)


def test_all_operators_are_checked(numpy_works):
    x = torch.zeros(1, 1, 4, 4)
    checked = {operator.op.name() for operator, _ in calls(x, geometries(x)["regular"])}
    assert checked == {f"poolgrad::{name}" for name in dir(torch.ops.poolgrad) if not name.startswith("_")} - {
        "poolgrad::name"
    }


# ---------------------------------------------------------------------------------------------------------------------
# Calls past PyTorch's dispatcher: only where nobody could tell


class Watched:
    """Counts the calls that go through PyTorch's dispatcher."""

    def __init__(self, monkeypatch):
        self.calls = 0
        for operator in (ops.maximum, ops.maximum_and_choice, ops.put, ops.mean, ops.spread):
            monkeypatch.setattr(operator, "op", self._counting(operator.op))

    def _counting(self, op):
        def call(*args):
            self.calls += 1
            return op(*args)

        call._opname, call.redispatch = op._opname, op.redispatch
        return call


@pytest.fixture
def watched(monkeypatch):
    return Watched(monkeypatch)


class Wrapped(torch.Tensor):
    """A subclass whose results are of the subclass, by __torch_function__."""


class Looking(torch.utils._python_dispatch.TorchDispatchMode):
    """Sees every operator."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


class Listening(torch.overrides.TorchFunctionMode):
    """Sees every call of PyTorch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "_opname", ""))
        return func(*args, **(kwargs or {}))


def test_ordinary_tensors_go_straight_to_the_kernels(watched, numpy_works):
    x = torch.randn(1, 3, 6, 6)
    y = pt.max_pool2d(x, 2)
    pt.avg_pool2d(x.to(memory_format=torch.channels_last), 2)
    with torch.inference_mode():
        assert pt.max_pool2d(x + 0, 2).is_inference()
    leaf = torch.nn.Parameter(x)
    with torch.no_grad():
        assert not pt.max_pool2d(leaf, 2).requires_grad
    for pool in (pt.max_pool2d, pt.avg_pool2d):
        pool(leaf, 2).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        assert pt.max_pool2d(x, 2).dtype is torch.float32
    assert watched.calls == 0
    assert type(y) is torch.Tensor and torch.equal(y, torch.nn.functional.max_pool2d(x, 2))


def test_a_second_derivative_is_recorded_without_the_dispatcher(watched, numpy_works):
    x = torch.randn(1, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    for pool in (pt.max_pool2d, pt.avg_pool2d):
        assert torch.autograd.gradgradcheck(lambda x, pool=pool: pool(x, 3, 2) ** 3, x)
    assert watched.calls == 0


WATCHERS = {
    "vmap": lambda x: torch.func.vmap(lambda x: pt.max_pool2d(x, 2))(x),
    "grad": lambda x: torch.func.grad(lambda x: pt.max_pool2d(x, 2).sum())(x),
    "jvp": lambda x: torch.func.jvp(lambda x: pt.max_pool2d(x, 2), (x,), (x,))[1],
    "functionalize": lambda x: torch.func.functionalize(lambda x: pt.max_pool2d(x, 2))(x),
    "meta": lambda x: pt.max_pool2d(x.to("meta"), 2),
    "negative bit": lambda x: pt.max_pool2d(torch.complex(x, x).conj().imag, 2),
    "trace": lambda x: torch.jit.trace(lambda x: pt.max_pool2d(x, 2), x, check_trace=False)(x),
    "make_fx": lambda x: torch.fx.experimental.proxy_tensor.make_fx(lambda x: pt.max_pool2d(x, 2))(x)(x),
    "fake": lambda x: pt.max_pool2d(torch._subclasses.FakeTensorMode().from_tensor(x), 2),
}


@pytest.mark.parametrize("name", WATCHERS)
def test_whoever_looks_on_sees_the_operator(name, watched, numpy_works):
    x = torch.randn(2, 3, 6, 6)
    found = WATCHERS[name](x)
    assert watched.calls > 0
    expected = torch.nn.functional.max_pool2d(-x if name == "negative bit" else x, 2)
    if name == "grad":
        assert torch.equal(found, torch.func.grad(lambda x: torch.nn.functional.max_pool2d(x, 2).sum())(x))
    elif name in ("meta", "fake"):
        assert found.shape == expected.shape
    else:
        assert torch.equal(found, expected)


def test_modes_subclasses_and_profiles_see_the_operator(numpy_works):
    x = torch.randn(2, 3, 6, 6)
    with Looking() as looking:
        pt.max_pool2d(x, 2)
    assert "poolgrad::maximum" in looking.seen
    with Listening() as listening:
        pt.max_pool2d(x, 2)
    assert "maximum" in listening.seen
    assert type(pt.max_pool2d(x.as_subclass(Wrapped), 2)) is Wrapped
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        pt.max_pool2d(x, 2)
    assert "poolgrad::maximum" in {event.key for event in profile.key_averages()}


def test_dual_tensors_keep_their_tangent(numpy_works):
    x, tangent = torch.randn(2, 2, 3, 6, 6)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        moved = torch.autograd.forward_ad.unpack_dual(pt.avg_pool2d(dual, 2)).tangent
    assert torch.equal(moved, pt.avg_pool2d(tangent, 2))


# ---------------------------------------------------------------------------------------------------------------------
# torch.compile, torch.export

MODELS = {
    "max": lambda x: pt.max_pool2d(x, 3, 2, 1),
    "max with indices": lambda x: pt.max_pool2d(x, 3, 2, "same", return_indices=True)[0],
    "max, ties": lambda x: pt.max_pool2d(x, 3, 2, ((0, 1), (1, 0)), ties="split", nan="ignore"),
    "avg": lambda x: pt.avg_pool2d(x, 3, 2, 1, True),
    "avg over a number": lambda x: pt.avg_pool2d(x, 3, 2, divisor_override=4),
    "adaptive max": lambda x: pt.adaptive_max_pool2d(x, (4, None)),
    "adaptive avg": lambda x: pt.adaptive_avg_pool2d(x, 3),
    "lp": lambda x: pt.lp_pool2d(x.abs() + 1, 3, 2),
    "unpool": lambda x: pt.max_unpool2d(*pt.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape),
    "fractional, seed": lambda x: pt.fractional_max_pool2d(x, 2, output_ratio=0.6, seed=3),
    "fractional avg, seed": lambda x: pt.fractional_avg_pool2d(x, None, output_ratio=0.6, seed=3),
}
SPECIALISED = {"adaptive max", "fractional avg, seed"}
"""Where the code of a choice may need two bytes, or cells are drawn, a graph may hold for its sizes only."""


def compiled(function, **settings):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, **settings)


def value_and_gradient(function, x):
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = function(x)
    return y, torch.autograd.grad((y**2).sum(), x)[0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_compile_has_no_graph_break_and_the_same_bits(name, memory_format, device):
    x = torch.randn(2, 3, 10, 8, device=device).contiguous(memory_format=memory_format)
    y, gradient = value_and_gradient(compiled(MODELS[name], backend="aot_eager"), x)
    expected, expected_gradient = value_and_gradient(MODELS[name], x)
    assert torch.equal(y, expected)
    assert torch.equal(gradient, expected_gradient)
    assert y.stride() == expected.stride()


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SPECIALISED])
def test_one_compiled_graph_serves_all_sizes(name, device):
    model = compiled(MODELS[name], backend="aot_eager", dynamic=True)
    counter = torch._dynamo.utils.counters["stats"]
    value_and_gradient(model, torch.randn(2, 3, 10, 8, device=device))
    before = counter["unique_graphs"]
    for shape in ((3, 4, 12, 10), (2, 5, 16, 20)):
        x = torch.randn(shape, device=device)
        for found, expected in zip(value_and_gradient(model, x), value_and_gradient(MODELS[name], x), strict=True):
            assert torch.equal(found, expected)
    assert counter["unique_graphs"] == before


def test_inductor(device):
    """The default compiler of PyTorch around our operators, forward and backward."""

    def block(x, weight):
        return pt.avg_pool3d(pt.max_pool3d(torch.relu(x * weight), 3, 2, 1) + 1, 2).sum((2, 3, 4))

    x = torch.randn(2, 3, 9, 8, 7, device=device)
    weight = torch.randn(3, 1, 1, 1, device=device, requires_grad=True)
    found, expected = compiled(block)(x, weight), block(x, weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), weight), torch.autograd.grad(expected.sum(), weight), rtol=1e-4, atol=1e-4
    )


def test_transforms_compile_too(device):
    def loss(x):
        return (pt.max_pool2d(x, 2) ** 3).sum()

    x = torch.randn(1, 1, 4, 4, dtype=torch.float64, device=device)
    for transform in (torch.func.grad, torch.func.hessian, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))):
        torch.testing.assert_close(compiled(transform(loss), backend="aot_eager")(x), transform(loss)(x))


def test_a_compiled_graph_keeps_the_policy_it_was_compiled_under(device):
    model = compiled(lambda x: pt.max_pool1d(x, 2), backend="aot_eager")
    x = torch.ones(1, 4, device=device)
    with poolgrad.policy(ties="split"):
        assert value_and_gradient(model, x)[1].tolist() == [[1] * 4]


@pytest.mark.parametrize("name", MODELS)
def test_export_with_sizes_left_open(name, device):
    class Model(torch.nn.Module):
        def forward(self, x):
            return MODELS[name](x)

    x = torch.randn(2, 3, 10, 8, device=device)
    sizes = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    program = torch.export.export(Model(), (x,), dynamic_shapes={"x": sizes})
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert any(str(target).startswith("poolgrad.") for target in called)
    other = torch.randn(4, 3, 16, 14, device=device)
    if name != "adaptive max":
        assert torch.equal(program.module()(other), MODELS[name](other))
    assert torch.equal(program.module()(x), MODELS[name](x))


# ---------------------------------------------------------------------------------------------------------------------
# Automatic casts, copies


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_pools_what_arrives_in_the_dtype_it_arrives_in(dtype, device):
    """Sums are kept in float32 inside, so there is nothing to gain by casting."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), pt.nn.MaxPool2d(3, 2), pt.nn.AvgPool2d(2)).to(device)
    x = torch.randn(2, 3, 12, 12, device=device)
    with torch.autocast(device.type, dtype):
        y = model(x)
        assert pt.max_pool2d(x, 2).dtype == torch.float32
    assert y.dtype == dtype
    y.float().sum().backward()
    assert model[0].weight.grad.dtype == torch.float32
    assert model[0].weight.grad.abs().sum() > 0


def test_under_inference_mode_and_no_grad(device):
    x = torch.randn(1, 2, 4, 4, device=device, requires_grad=True)
    with torch.inference_mode():
        inferred = pt.max_pool2d(x, 2)
    with torch.no_grad():
        plain = pt.max_pool2d(x, 2)
    assert torch.equal(inferred, plain)
    assert not plain.requires_grad


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_results_may_be_changed_in_place(name, memory_format, device):
    """As `nn.ReLU(inplace=True)` does behind a pooling; PyTorch forbids it for views made by a formula of autograd."""
    x = torch.randn(2, 3, 6, 6, device=device).contiguous(memory_format=memory_format)
    pool, theirs = getattr(pt, name), getattr(torch.nn.functional, name)
    a, b = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    pool(a, 2).relu_().sum().backward()
    theirs(b, 2).relu_().sum().backward()
    torch.testing.assert_close(a.grad, b.grad)
    weight = torch.tensor(2.0, device=device, requires_grad=True)
    with torch.no_grad():
        y = pool(x, 2)
    assert not y._is_view()
    y.mul_(weight).sum().backward()
    torch.testing.assert_close(weight.grad, theirs(x, 2).sum())


def test_nothing_is_recorded_where_autograd_is_off(device):
    """Inference mode does not record even with `enable_grad` inside it, and neither do the kernels of operators."""
    x = torch.randn(1, 1, 4, 4, device=device, requires_grad=True)
    for pool in (pt.max_pool2d, pt.avg_pool2d):
        with torch.inference_mode(), torch.enable_grad():
            y = pool(x, 2)
        assert y.is_inference() and not y.requires_grad
        with torch._C._AutoDispatchBelowAutograd():
            assert not pool(x, 2).requires_grad


def test_subclasses_and_parameters(device):
    x = torch.nn.Parameter(torch.randn(1, 2, 4, 4, device=device))
    pt.max_pool2d(x, 2).sum().backward()
    assert x.grad.sum() == 8

    class Marked(torch.Tensor):
        pass

    assert torch.equal(pt.max_pool2d(x.detach().as_subclass(Marked), 2), pt.max_pool2d(x, 2))
    assert copy.deepcopy(x).shape == x.shape


# ---------------------------------------------------------------------------------------------------------------------
# Whatever they are given


@pytest.mark.parametrize(
    "geometry",
    [
        [], [0], [0, 2, 2], [0, 2, 1, 4, 2, 9], [0, 2, 2, 4, 2, 0, 2, 2, 0, 1, 0, 0],
        [0, 2, 1, 4, 2, 0, 2, 2, 0, 1, 0, 0, 99], [0, 2, 1, 4, 2, 0, 0, 2, 0, 1, 0, 0],
        [0, 2, 1, 4, 2, 0, 2, 2, -1, 1, 0, 0], [0, 2, 1, 4, 9, 0, 2, 2, 0, 1, 0, 0],
        [0, 2, 1, 5, 2, 0, 2, 2, 0, 1, 0, 0], [0, 7, 1, 4, 2, 0, 2, 2, 0, 1, 0, 0],
        [0, 2, 1, 4, 2, 2, 0, 0, 2, 1, 9, 0], [0, 2, 1, 4, 2, 2, 0, 2, 0, 3, 1, 0],
        [0, 2, 1, 4, 2, 0, 2, 2, 0, 1, 0, 2, 0], [0, 2, 1, 4, -2, 1, 0],
    ],
)  # fmt: skip
def test_a_list_that_is_no_pooling_is_refused(geometry, device):
    with pytest.raises((PoolgradError, RuntimeError, IndexError)):
        ops.mean(torch.ones(1, 1, 4, device=device), geometry)


def test_tensors_that_do_not_belong_together_are_refused(device):
    x = torch.randn(1, 1, 4, 4, device=device)
    geometry = arguments.regular("test", x, 2, 2, 2, 0)
    y, choice = ops.maximum_and_choice(x, geometry, "propagate")
    for call in (
        lambda: ops.take(x, choice[..., :1], geometry),
        lambda: ops.take(x, choice.to(torch.int32), geometry),
        lambda: ops.put(y[..., :1], choice, geometry),
        lambda: ops.max_put(y.double(), x, None, geometry, "first", "propagate"),
        lambda: ops.max_take(x, x, y[:, :0], geometry, "first", "propagate"),
        lambda: ops.maximum(x, geometry, "last", "propagate"),
        lambda: ops.index_take(x, choice, geometry, "spatial"),
        lambda: ops.mean(y, geometry),
    ):
        with pytest.raises(PoolgradError):
            call()


def test_operators_called_by_hand_refuse_what_is_no_pooling():
    x, axis = torch.ones(1, 2, 8), geometry.regular_axis(8, 4, 2, 2, 0, 1)
    choice = torch.zeros(1, 2, 4, dtype=torch.uint8)
    with pytest.raises(InvalidArgument, match="spatial axes"):
        ops.mean(x, [0, -1, 1, *axis])
    with pytest.raises(InvalidArgument, match="scope is 'row'"):
        ops.choice_to_index(choice, [0, 2, 1, *axis], "row")


def test_averages_that_divide_by_their_elements_need_no_table():
    """PyTorch's default counts padding; without padding that is what the kernels do by themselves."""
    for padding, has_table in ((1, True), (0, False)):
        encoded = arguments.regular("avg_pool1d", torch.ones(1, 2, 9), 1, 3, 2, padding, divide="padded")
        assert (geometry.pool_of(tuple(encoded), (1, 2, 9), 2).divisors is not None) == has_table
