"""An sdc11073 provider whose containment tree changes while it publishes, and which counts the states it sent.

Usage: changing.py ADDRESS FOLDER MODE [--fail COUNT]. Modes:
  tree   inserts and removes a metric every two seconds, sends a block of its waveform every 25 ms and
         reports of metrics every 100 ms
  units  gives a metric another unit before each of its values
GetMetadata of the services and GetMdib fail COUNT times each. Prints "ready EPR" when it answers. It
publishes while FOLDER/go exists; when that is gone it writes FOLDER/sent.json: by handle, the values that
a subscriber has accepted, one for each state, in their order; and how many it has refused.
"""

import argparse
import collections
import contextvars
import decimal
import json
import pathlib
import time
import uuid

import aiohttp
from sdc11073.location import SdcLocation
from sdc11073.mdib import ProviderMdib
from sdc11073.mdib.descriptorcontainers import NumericMetricDescriptorContainer
from sdc11073.provider import SdcProvider
from sdc11073.provider.dpwshostedservice import DPWSHostedService
from sdc11073.provider.porttypes.getserviceimpl import GetService
from sdc11073.provider.subscriptionmgr_async import BicepsSubscriptionAsync
from sdc11073.wsdiscovery import WSDiscovery
from sdc11073.xml_types import dpws_types, pm_types

WAVEFORM_S, METRICS_S, TREE_S = 0.025, 0.1, 2.0
GUESTS = 5
# Codes of dimensionless and of per cent, and what a value in them is in per cent.
UNITS = [("262656", 100), ("262688", 1)]

sent: dict[str, list[float]] = collections.defaultdict(list)
refused: list[int] = []
# The HTTP status of the answer to the report that a task sends; 0 while there is none.
status: contextvars.ContextVar[int] = contextvars.ContextVar("status")
# What a value of the present unit is in the unit in which values are counted.
factor = 1


def note_statuses() -> None:
    """Checks the HTTP status: sdc11073 treats 503 without a body like 202."""
    read = aiohttp.ClientResponse.text

    async def noting(self, *arguments, **options):
        status.set(self.status)
        return await read(self, *arguments, **options)

    aiohttp.ClientResponse.text = noting


def count_accepted_states() -> None:
    """Counts the states with a value in a report once the subscriber has accepted it. sdc11073 sends the states that
    come with a descriptor in two reports; equal versions show that they belong together."""
    send = BicepsSubscriptionAsync.async_send_notification_report
    newest: dict[str, int] = collections.defaultdict(lambda: -1)

    async def counting(self, body_node, action):
        if not self.is_valid or self.unsubscribed_at is not None:
            return
        status.set(0)
        try:
            await send(self, body_node, action)
        except Exception:
            refused.append(status.get())
            raise
        if not 200 <= status.get() < 300:
            refused.append(status.get())
            return
        for state in body_node.iter():
            value = state.find("{*}MetricValue")
            handle, version = state.get("DescriptorHandle"), int(state.get("StateVersion", "0"))
            if handle and value is not None and version > newest[handle]:
                newest[handle] = version
                sent[handle].append(float(value.get("Value") or value.get("Samples").split(" ")[0]) * factor)

    BicepsSubscriptionAsync.async_send_notification_report = counting


def fail_at_first(count: int) -> None:
    """Each service fails to return its metadata this many times, and the device its description."""
    def failing(answer):
        failures: dict[int, int] = collections.defaultdict(int)

        def handler(self, *arguments):
            failures[id(self)] += 1
            if failures[id(self)] <= count:
                raise RuntimeError("made to fail")
            return answer(self, *arguments)
        return handler

    DPWSHostedService._on_get_metadata = failing(DPWSHostedService._on_get_metadata)
    GetService._on_get_mdib = failing(GetService._on_get_mdib)


class Publisher:
    """Values are counted from 1, so each is unique."""

    def __init__(self, mdib: ProviderMdib):
        self.mdib = mdib
        self.counts: dict[str, int] = collections.defaultdict(int)
        self.guest: str | None = None
        self.changes = 0

    def next(self, handle: str) -> decimal.Decimal:
        self.counts[handle] += 1
        return decimal.Decimal(self.counts[handle])

    def waveform(self) -> None:
        with self.mdib.rt_sample_state_transaction() as transaction:
            state = transaction.get_state("ecg_lead_2")
            if state.MetricValue is None:
                state.mk_metric_value()
            state.MetricValue.Samples = [self.next("ecg_lead_2")] + [decimal.Decimal("0.1")] * 4
            state.MetricValue.DeterminationTime = time.time()
            state.MetricValue.MetricQuality.Validity = pm_types.MeasurementValidity.VALID

    def metrics(self, *handles: str) -> None:
        with self.mdib.metric_state_transaction() as transaction:
            for handle in handles:
                state = transaction.get_state(handle)
                if state.MetricValue is None:
                    state.mk_metric_value()
                state.MetricValue.Value = self.next(handle)
                state.MetricValue.MetricQuality.Validity = pm_types.MeasurementValidity.VALID

    def change_tree(self) -> None:
        if self.guest:
            self.metrics(self.guest)
            with self.mdib.descriptor_transaction() as transaction:
                transaction.remove_descriptor(self.guest)
            self.guest = None
        else:
            guest = f"guest_{self.changes // 2 % GUESTS}"
            descriptor = NumericMetricDescriptorContainer(guest, "ch0")
            descriptor.Type = pm_types.CodedValue("67112961", "urn:chappe:test")
            descriptor.Unit = pm_types.CodedValue(UNITS[0][0])
            descriptor.Resolution = decimal.Decimal(1)
            state = self.mdib.data_model.mk_state_container(descriptor)
            with self.mdib.descriptor_transaction() as transaction:
                transaction.add_descriptor(descriptor, state_container=state)
            self.guest = guest
            self.metrics(guest)
        self.changes += 1

    def change_unit(self) -> None:
        global factor
        with self.mdib.descriptor_transaction() as transaction:
            descriptor = transaction.get_descriptor("heart_rate")
            code, factor = UNITS[self.changes % 2]
            descriptor.Unit = pm_types.CodedValue(code)
        self.changes += 1
        self.metrics("heart_rate")

    def run_tree(self, go: pathlib.Path) -> None:
        due = dict.fromkeys(("waveform", "metrics", "tree"), time.monotonic())
        while go.exists():
            now = time.monotonic()
            if now >= due["tree"]:
                due["tree"] += TREE_S
                self.change_tree()
            if now >= due["metrics"]:
                due["metrics"] += METRICS_S
                self.metrics("heart_rate", *([self.guest] if self.guest else []))
            if now >= due["waveform"]:
                due["waveform"] += WAVEFORM_S
                self.waveform()
            time.sleep(max(0.0, min(due.values()) - time.monotonic()))

    def run_units(self, go: pathlib.Path) -> None:
        while go.exists():
            self.change_unit()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("mode", choices=["tree", "units"])
    parser.add_argument("--fail", type=int, default=0)
    options = parser.parse_args()
    note_statuses()
    count_accepted_states()
    fail_at_first(options.fail)
    discovery = WSDiscovery(options.address)
    discovery.start()
    mdib = ProviderMdib.from_mdib_file(str(pathlib.Path(__file__).parent / "mdib.xml"))
    model = dpws_types.ThisModelType("Peer Works", "www.example.com", "Vital Signs", "7", None, None)
    device = dpws_types.ThisDeviceType("Changing monitor", "1.2.3", f"SN-43-{options.mode}")
    provider = SdcProvider(discovery, model, device, mdib, epr=str(uuid.uuid4()), max_subscription_duration=60)
    provider.start_all(start_rtsample_loop=False)
    # This says Hello, too.
    provider.set_location(SdcLocation(fac="HOSP", poc="CU1", bed="Bed2"))
    print("ready", provider.epr_urn, flush=True)
    publisher, go = Publisher(mdib), options.folder / "go"
    while True:
        while not go.exists():
            time.sleep(0.05)
        (publisher.run_tree if options.mode == "tree" else publisher.run_units)(go)
        # Written beside and renamed: whoever sees it sees all of it.
        beside = options.folder / "sent.json.new"
        beside.write_text(json.dumps({"sent": sent, "changes": publisher.changes, "refused": refused}))
        beside.rename(options.folder / "sent.json")


if __name__ == "__main__":
    main()
