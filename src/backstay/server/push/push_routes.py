"""Web Push operations: the devices of the caller, and what they are told about a session."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.gateways.push_subscription import PushChoice
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import Refused
from backstay.store.commands.gateways import push_commands


class PushDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that gets notifications; with `text`, they contain what the agent wrote."""

    number: int
    name: str
    text: bool
    created_at: int


class PushFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this server sends notifications, the key that browsers subscribe to, and the caller's devices."""

    available: bool
    public_key: str | None
    devices: tuple[PushDevice, ...]


class PushKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a browser's subscription."""

    p256dh: Annotated[str, Meta(min_length=1, max_length=256)]
    auth: Annotated[str, Meta(min_length=1, max_length=256)]


class BrowserSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """The subscription of a browser, as its `toJSON()` returns it."""

    endpoint: Annotated[str, Meta(min_length=1, max_length=2_048)]
    keys: PushKeys


class NewDevice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A browser that wants notifications. With `text`, they contain what the agent wrote."""

    subscription: BrowserSubscription
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    text: bool = False


async def read_push(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Read the caller's devices, and the key that browsers subscribe to."""
    service, app = call.service.push, call.service.app
    key = (await service.key(app)).public if service.available else None
    found = await call.run(push_commands.push_subscriptions(owner=call.owner))
    devices = tuple(msgspec.convert(one, PushDevice, from_attributes=True) for one in found)
    return ApiResponse(value=PushFacts(available=service.available, public_key=key, devices=devices))


async def add_device(call: ApiRequest[NewDevice, NoInput]) -> ApiResponse:
    """Send notifications to a browser."""
    if not call.service.push.available:
        raise Refused(
            409, "push_missing", "this server cannot send notifications", hint="Install it as backstay[push]."
        )
    wanted = call.body.subscription
    made = await call.service.push.subscribe(
        call.service.app,
        call.owner,
        wanted.endpoint,
        public_key=wanted.keys.p256dh,
        secret=wanted.keys.auth,
        name=call.body.name,
        text=call.body.text,
    )
    return ApiResponse(value=msgspec.convert(made, PushDevice, from_attributes=True))


async def remove_device(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Send nothing more to a browser."""
    number = call.named("device")
    if not (number.isascii() and number.isdigit() and len(number) <= 15):
        raise NotFound(f"no device {number!r} of {call.owner!r}", hint="A device is named by its number.")
    await call.run(push_commands.unsubscribe_push(int(number), owner=call.owner))
    return ApiResponse()


async def read_choice(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Read what the caller's devices are told about a session."""
    return ApiResponse(value=await call.run(push_commands.push_choice(call.session, owner=call.owner)))


async def set_choice(call: ApiRequest[PushChoice, NoInput]) -> ApiResponse:
    """Set what the caller's devices are told about a session."""
    return ApiResponse(value=await call.run(push_commands.choose_push(call.session, call.body, owner=call.owner)))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/push",
        name="read_push",
        summary="Read the devices that get notifications, and the key that browsers subscribe to.",
        run=read_push,
        body=NoInput,
        query=NoInput,
        answer=PushFacts,
    ),
    Operation(
        method="POST",
        path="/api/push/devices",
        name="add_push_device",
        summary="Send notifications to a browser.",
        run=add_device,
        body=NewDevice,
        query=NoInput,
        answer=PushDevice,
        problems=(409,),
    ),
    Operation(
        method="DELETE",
        path="/api/push/devices/{device}",
        name="remove_push_device",
        summary="Send nothing more to a browser.",
        run=remove_device,
        body=NoInput,
        query=NoInput,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/push",
        name="read_push_choice",
        summary="Read what the caller's devices are told about a session.",
        run=read_choice,
        body=NoInput,
        query=NoInput,
        answer=PushChoice,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/push",
        name="set_push_choice",
        summary="Set what the caller's devices are told about a session.",
        run=set_choice,
        body=PushChoice,
        query=NoInput,
        answer=PushChoice,
    ),
)
