"""An IEEE 11073 SDC provider (sdc11073) with three metrics and a waveform, for peer tests.

Usage: provider.py ADDRESS SECONDS [no-nagle | ENDPOINT CERTIFICATE KEY AUTHORITY]. Prints "ready EPR" when it answers, then
one line per second. With `no-nagle` its HTTP server sends the body of an answer at once, instead of when the client has
acknowledged the head. With a certificate it has https alone, and demands certificates that the authority has signed.
"""

import decimal
import math
import pathlib
import sys
import time
import uuid

from sdc11073.certloader import mk_ssl_contexts
from sdc11073.httpserver.httprequesthandler import DispatchingRequestHandler
from sdc11073.location import SdcLocation
from sdc11073.mdib import ProviderMdib
from sdc11073.provider import SdcProvider
from sdc11073.wsdiscovery import WSDiscovery
from sdc11073.xml_types import dpws_types, pm_types

PERIOD_S = 0.005
STRETCH_S = 0.1


def stretch(start: int, count: int) -> list[decimal.Decimal]:
    """A pulse of 1 mV every 0.8 s on a flat line: 75 beats a minute."""
    values = []
    for index in range(start, start + count):
        phase = (index * PERIOD_S) % 0.8
        value = math.exp(-(((phase - 0.4) / 0.012) ** 2))
        values.append(decimal.Decimal(f"{value:.3f}"))
    return values


def publish(mdib: ProviderMdib, sample: int, stretch_index: int) -> None:
    count = round(STRETCH_S / PERIOD_S)
    with mdib.rt_sample_state_transaction() as transaction:
        state = transaction.get_state("ecg_lead_2")
        if state.MetricValue is None:
            state.mk_metric_value()
        state.MetricValue.Samples = stretch(sample, count)
        state.MetricValue.DeterminationTime = time.time()
        state.MetricValue.MetricQuality.Validity = pm_types.MeasurementValidity.VALID
    if stretch_index % 5:
        return
    with mdib.metric_state_transaction() as transaction:
        values = {"heart_rate": decimal.Decimal(75),
                  "body_temperature": decimal.Decimal("36.6") + decimal.Decimal(stretch_index % 7) / 10,
                  "probe_site": ("axilla", "ear")[stretch_index // 5 % 2]}
        for handle, value in values.items():
            state = transaction.get_state(handle)
            if state.MetricValue is None:
                state.mk_metric_value()
            state.MetricValue.Value = value
            state.MetricValue.DeterminationTime = time.time()
            state.MetricValue.MetricQuality.Validity = pm_types.MeasurementValidity.VALID


def main() -> None:
    address, seconds = sys.argv[1], float(sys.argv[2])
    DispatchingRequestHandler.disable_nagle_algorithm = sys.argv[3:] == ["no-nagle"]
    endpoint, contexts = str(uuid.uuid4()), None
    if len(sys.argv) > 4:
        endpoint = sys.argv[3]
        certificate, key, authority = map(pathlib.Path, sys.argv[4:7])
        contexts = mk_ssl_contexts(key, certificate, authority)
    discovery = WSDiscovery(address)
    discovery.start()
    mdib = ProviderMdib.from_mdib_file(str(pathlib.Path(__file__).parent / "mdib.xml"))
    model = dpws_types.ThisModelType("Peer Works", "www.example.com", "Vital Signs", "7", None, None)
    device = dpws_types.ThisDeviceType("SDC monitor", "1.2.3", "SN-42")
    provider = SdcProvider(discovery, model, device, mdib, epr=endpoint, max_subscription_duration=60,
                           ssl_context_container=contexts)
    provider.start_all(start_rtsample_loop=False)
    provider.set_location(SdcLocation(fac="HOSP", poc="CU1", bed="Bed1"))
    print("ready", provider.epr_urn, flush=True)
    end = time.monotonic() + seconds
    sample = stretch_index = 0
    while time.monotonic() < end:
        publish(mdib, sample, stretch_index)
        sample += round(STRETCH_S / PERIOD_S)
        stretch_index += 1
        time.sleep(STRETCH_S)
    provider.stop_all()
    discovery.stop()


if __name__ == "__main__":
    main()
