"""The modules: PyTorch's in name, arguments, printed form and state, and exchanged for them in a model and back."""

import copy
import inspect
import io
import pickle

import pytest
import torch

import poolgrad.torch as pt
from poolgrad.errors import InvalidArgument

MODULES = [
    ("MaxPool1d", (3, 2, 1), (2, 3, 12)),
    ("MaxPool2d", ((3, 2), 2, 1, 1, False, True), (2, 3, 12, 11)),
    ("MaxPool3d", (3, 2, 1), (2, 3, 8, 9, 7)),
    ("AvgPool1d", (3, 2, 1), (2, 3, 12)),
    ("AvgPool2d", (3, 2, 1, True, False), (2, 3, 12, 11)),
    ("AvgPool3d", (3, 2, 1, True, True, 5), (2, 3, 8, 9, 7)),
    ("AdaptiveMaxPool1d", (5,), (2, 3, 12)),
    ("AdaptiveMaxPool2d", ((5, None), True), (2, 3, 12, 11)),
    ("AdaptiveMaxPool3d", (3,), (2, 3, 8, 9, 7)),
    ("AdaptiveAvgPool1d", (5,), (2, 3, 12)),
    ("AdaptiveAvgPool2d", ((5, None),), (2, 3, 12, 11)),
    ("AdaptiveAvgPool3d", (3,), (2, 3, 8, 9, 7)),
    ("LPPool1d", (2, 3), (2, 3, 12)),
    ("LPPool2d", (2, 3, 2), (2, 3, 12, 11)),
    ("LPPool3d", (2, 3, 2, True), (2, 3, 8, 9, 7)),
    ("FractionalMaxPool2d", (2, (5, 4)), (2, 3, 12, 11)),
    ("FractionalMaxPool3d", (2, None, 0.5), (2, 3, 8, 9, 7)),
]


def run(module, x):
    torch.manual_seed(0)
    return module(x)


@pytest.mark.parametrize(("name", "args", "shape"), MODULES, ids=[m[0] for m in MODULES])
def test_modules_are_pytorchs(name, args, shape, device):
    theirs, ours = getattr(torch.nn, name)(*args), getattr(pt.nn, name)(*args)
    x = torch.rand(shape, device=device)
    torch.testing.assert_close(run(ours, x), run(theirs, x))
    assert repr(ours) == repr(theirs)
    assert ours.state_dict() == theirs.state_dict() == {}
    assert isinstance(ours, type(theirs))
    assert repr(pickle.loads(pickle.dumps(ours))) == repr(copy.deepcopy(ours)) == repr(ours)


def test_unpooling_modules(device):
    for axes in (1, 2, 3):
        x = torch.rand(2, 3, *(6, 8, 4)[:axes], device=device)
        y, indices = getattr(pt.nn, f"MaxPool{axes}d")(2, return_indices=True)(x)
        theirs, ours = getattr(torch.nn, f"MaxUnpool{axes}d")(2), getattr(pt.nn, f"MaxUnpool{axes}d")(2)
        assert torch.equal(ours(y, indices), theirs(y, indices))
        assert torch.equal(ours(y, indices, output_size=x.shape), theirs(y, indices, output_size=x.shape))
        assert repr(ours) == repr(theirs)


def test_every_pooling_module_of_pytorch_is_here_with_its_arguments():
    theirs = {name for name in dir(torch.nn) if "Pool" in name or "pool" in name}
    assert theirs <= set(pt.nn.__all__)
    for name in theirs:
        ours = inspect.signature(getattr(pt.nn, name).__init__).parameters
        known = set(ours) | ({"**"} if any(p.kind is p.VAR_KEYWORD for p in ours.values()) else set())
        wanted = set(inspect.signature(getattr(torch.nn, name).__init__).parameters)
        assert wanted <= known or "**" in known


def test_what_pytorch_lacks(device):
    x = torch.rand(2, 3, 8, 9, 7, device=device)
    pool = pt.nn.FractionalMaxPool3d(2, output_ratio=0.7, seed=7)
    assert torch.equal(pool(x), pool(x)), "a seed is a value"
    assert pool(x).shape == (2, 3, 5, 6, 4)
    assert "seed=7" in repr(pool)
    assert pt.nn.FractionalAvgPool3d(None, output_ratio=0.7, seed=7, overlapping=True)(x).shape == (2, 3, 5, 6, 4)
    assert pt.nn.FractionalAvgPool2d(2, 4)(x[:, :, 0]).shape == (2, 3, 4, 4)
    assert pt.nn.MaxPool3d(3, 2, padding="same", ties="all")(x).shape == (2, 3, 4, 5, 4)
    assert pt.nn.AvgPool1d(3, 2, padding="same")(x[0, 0]).shape == (8, 9, 4)
    with pytest.raises(ValueError, match="ties"):
        pt.nn.MaxPool2d(2, ties="most")


# ---------------------------------------------------------------------------------------------------------------------
# convert, revert


class Own(torch.nn.MaxPool2d):
    """A subclass that means something else by forward."""

    def forward(self, input):
        return -super().forward(input)


def network():
    torch.manual_seed(0)
    shared = torch.nn.AvgPool2d(2)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.MaxPool2d(3, 2, 1),
        torch.nn.Sequential(shared, torch.nn.ReLU(), Own(2)),
        torch.nn.FractionalMaxPool2d(2, 3),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    )


def trained(model, device, steps=3):
    """The losses of some steps of training, and what the weights are then."""
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(4, 1, 32, 32, device=device)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def test_a_model_is_converted_and_back(device):
    model = network()
    names = list(model.state_dict())
    called = []
    model[2].register_forward_hook(lambda *_: called.append(True))
    report = []
    converted = pt.convert(model, report=report.append)
    assert converted is model
    assert [line.partition(":")[0] for line in report] == ["2", "3.0", "4", "5", "4 modules converted"]
    assert type(model[2]) is pt.nn.MaxPool2d
    assert type(model[3][2]) is Own, "a subclass is left alone"
    assert list(model.state_dict()) == names
    model.load_state_dict(network().state_dict())
    found, expected = trained(model, device), trained(network(), device)
    torch.testing.assert_close(found, expected)
    assert called, "hooks stay"

    pt.revert(model, report=None)
    assert [type(m) for m in model.modules()] == [type(m) for m in network().modules()]
    assert repr(model) == repr(network())


def test_a_module_that_is_the_model_itself():
    assert type(pt.convert(torch.nn.MaxPool3d(2), report=None)) is pt.nn.MaxPool3d


def test_the_report_is_printed(capsys):
    pt.convert(network())
    assert capsys.readouterr().out.endswith("4 modules converted\n")


@pytest.mark.parametrize(
    "module",
    [
        pt.nn.MaxPool2d(2, ties="all"),
        pt.nn.MaxPool2d(3, padding="same"),
        pt.nn.AvgPool2d(3, padding=((0, 1), (1, 0))),
        pt.nn.FractionalMaxPool2d(2, 3, seed=1),
        pt.nn.FractionalAvgPool2d(2, 3, seed=1),
    ],
)
def test_what_pytorch_cannot_do_is_not_reverted(module):
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(2), module)
    with pytest.raises(InvalidArgument, match="2: "):
        pt.revert(model)


def test_saved_models_are_interchangeable():
    file = io.BytesIO()
    torch.save(pt.convert(network(), report=None).state_dict(), file)
    file.seek(0)
    network().load_state_dict(torch.load(file))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("module", [pt.nn.MaxPool2d(3, 2, 1), pt.nn.AvgPool2d(2), pt.nn.AdaptiveMaxPool2d(3)])
def test_a_trace_holds_for_its_sizes(module, device):
    traced = torch.jit.trace(module, torch.randn(2, 3, 8, 8, device=device))
    x = torch.randn(5, 3, 8, 8, device=device, requires_grad=True)
    assert torch.equal(traced(x), module(x))
    assert torch.equal(torch.autograd.grad(traced(x).sum(), x)[0], torch.autograd.grad(module(x).sum(), x)[0])
    with pytest.raises(RuntimeError, match="spatial axes"):
        traced(torch.randn(2, 3, 10, 10, device=device))
