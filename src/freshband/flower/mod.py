"""The client's side: a Flower mod for channels, kept updates and reported errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from freshband.federated.contribution import _ALONE, _without_one
from freshband.flower._wire import FLOATING, RECORD, Arrays, Order, to_arrays, to_record, widened

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable, Mod

_OnChannel: TypeAlias = Callable[[int, Context], None]
_MeasureError: TypeAlias = Callable[[ArrayRecord, Context], float]

_SENT, _TAKEN = f"{RECORD}.sent", f"{RECORD}.taken"


def channel_mod(
    on_channel: _OnChannel | None = None, measure_error: _MeasureError | None = None
) -> Mod:
    """Return the mod a ClientApp needs to take part: ``ClientApp(mods=[channel_mod()])``.

    It tells the server which client this node is (``partition-id`` of the node's configuration),
    calls ``on_channel`` with the assigned channel, keeps the update if the server may ask for it
    again, and reports the error of the model without this client if the scheduler uses
    contributions. The training function is that of any Flower app.

    Parameters
    ----------
    on_channel : callable, optional
        ``on_channel(channel, context)`` is called after training, before the answer leaves: switch
        the radio, the route or the gateway here. -1 means no channel in this round. If it raises an
        error, the server learns nothing about the channel.
    measure_error : callable, optional
        ``measure_error(arrays, context)`` returns the share in [0, 1] of the client's validation
        samples that a model gets wrong. Needed with ``+priority`` and contribution weights.

    Notes
    -----
    The model without the client is `(w - ζ_m w_m) / (1 - ζ_m)` (42), from the model received, the
    weight it came with and the client's own last update that the server took, which the node
    keeps. A node that was restarted has lost it and measures the whole model.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        order = Order.read(message.content) if message.has_content() else None
        if order is None:
            return call_next(message, context)
        if order.task == "hello":
            return _answer(message, client=int(context.node_config.get("partition-id", -1)))
        kept = _name_of(context, _SENT) == (str(context.run_id), order.round)
        if order.task == "resend" and not kept:
            return _answer(message, order=order.round, lost=1)
        if order.task == "resend" and not order.further:
            reply = _resend(message, context)
        else:
            reply = _train(message, context, order, call_next, measure_error)
        if on_channel is not None and not reply.has_error():
            on_channel(order.channel, context)
        return reply

    return mod


def _answer(message: Message, **said: int) -> Message:
    return Message(RecordDict({RECORD: MetricRecord(dict(said))}), reply_to=message)


def _resend(message: Message, context: Context) -> Message:
    content = {name: context.state[f"{_SENT}.{name}"] for name in ("arrays", "metrics")}
    content[RECORD] = context.state[f"{_SENT}.said"]
    return Message(RecordDict(content), reply_to=message)


def _train(
    message: Message,
    context: Context,
    order: Order,
    call_next: ClientAppCallable,
    measure_error: _MeasureError | None,
) -> Message:
    said: dict[str, int | float] = {"order": order.round}
    if order.task == "resend":  # go on from the update that was kept
        said |= cast(dict[str, int | float], dict(context.state[f"{_SENT}.said"]))
        for name in list(message.content.array_records):
            message.content[name] = context.state[f"{_SENT}.arrays"]
    _note_taken(context, order)
    if order.value and measure_error is not None:
        said["error"] = float(measure_error(_without(message, context, order), context))
    del message.content[RECORD]  # the user's function sees only its strategy's message
    reply = call_next(message, context)
    if not reply.has_error():
        if order.keep or order.value:
            _keep(context, order, reply, said)
        reply.content[RECORD] = MetricRecord(dict(said))
        if order.hold:
            return _answer(message, order=order.round, waiting=1)
    return reply


def _keep(context: Context, order: Order, reply: Message, said: dict[str, int | float]) -> None:
    arrays = list(reply.content.array_records.values())
    metrics = list(reply.content.metric_records.values())
    state = context.state
    state[_SENT] = ConfigRecord({"run": str(context.run_id), "order": order.round})
    state[f"{_SENT}.arrays"] = arrays[0] if arrays else ArrayRecord()
    state[f"{_SENT}.metrics"] = metrics[0] if metrics else MetricRecord()
    state[f"{_SENT}.said"] = MetricRecord(dict(said))


def _name_of(context: Context, key: str) -> tuple[str, int] | None:
    record = context.state.get(key)
    if not isinstance(record, ConfigRecord):
        return None
    return str(record["run"]), cast(int, record["order"])


def _note_taken(context: Context, order: Order) -> None:
    """Remember the update that the server took as this client's part of the model."""
    wanted = (str(context.run_id), order.taken)
    if order.value and order.taken and _name_of(context, _SENT) == wanted:
        context.state[_TAKEN] = context.state[_SENT]
        context.state[f"{_TAKEN}.arrays"] = context.state[f"{_SENT}.arrays"]


def _without(message: Message, context: Context, order: Order) -> ArrayRecord:
    """Return the model without this client, equation (42)."""
    whole = next(iter(message.content.array_records.values()))
    known = _name_of(context, _TAKEN) == (str(context.run_id), order.taken)
    if not known or not order.taken or order.weight >= _ALONE:
        return whole
    own = to_arrays(cast(ArrayRecord, context.state[f"{_TAKEN}.arrays"]))
    rest: Arrays = {}
    for name, array in to_arrays(whole).items():
        if array.dtype.kind in FLOATING:
            wide = widened(array)
            zeta = wide.dtype.type(order.weight)
            rest[name] = _without_one(wide, widened(own[name]), zeta).astype(array.dtype)
        else:
            rest[name] = array
    return to_record(rest)
