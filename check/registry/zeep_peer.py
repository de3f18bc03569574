"""zeep publishes and finds in a running node, with nothing but the WSDL that the node serves.

    python check/registry/zeep_peer.py URL USER CREDENTIAL [SERVICE]

With a SERVICE it waits for that service of a device instead.
"""

import sys
import time

from lxml import etree
from zeep import Client
from zeep.exceptions import Fault


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"not so: {what}")
    print(f"ok: {what}", flush=True)


def refused(code: str, call) -> None:
    try:
        call()
    except Fault as fault:
        found = fault.detail.find(".//{urn:uddi-org:api_v2}errInfo").get("errCode")
        if found != code:
            raise SystemExit(f"{found}, not {code}: {etree.tostring(fault.detail)}")
        expect(True, f"{code} reaches the caller")
        return
    raise SystemExit(f"{code} is not raised")


def text(value: str) -> dict:
    return {"_value_1": value}


def metadata(url: str, token: str, service: str) -> None:
    """The interfaces of GRIMOIRES for metadata, about a service."""
    client = Client(f"{url}/uddi/metadata?wsdl")
    publish, inquire, uddi, wsdl = (
        client.bind("Metadata", name)
        for name in ("PublishMetadata", "InquireMetadata", "InquireUddiMetadata", "InquireWsdlMetadata"))
    reference = {"stringKey": service, "entityType": "https://chappe.example/ns/uddi#businessService"}
    piece = {"metadataKey": "", "metadataType": "urn:trust", "metadataValue": {"stringValue": {"_value_1": "high"}}}
    refused("E_authTokenRequired",
            lambda: publish.addMetadataToEntity(entityReference=reference, metadata=piece))
    added = publish.addMetadataToEntity(authInfo=token, entityReference=reference, metadata=piece)
    expect(added.author == "operator" and added.metadataValue.stringValue._value_1 == "high", "addMetadataToEntity")
    known = {**piece, "metadataKey": added.metadataKey, "metadataValue": {"uriValue": "urn:high"}}
    updated = publish.addMetadataToEntity(authInfo=token, entityReference=reference, metadata=known)
    expect(updated.metadataKey == added.metadataKey, "a known key updates")
    read = inquire.get_metadataDetail(metadataKey=added.metadataKey)
    expect(read.metadataValue.uriValue == "urn:high", "get_metadataDetail")
    listed = inquire.get_entityMetadata(entityReference=reference)
    expect([one.metadataKey for one in listed.metadataInfo] == [added.metadataKey], "get_entityMetadata")
    query = {"metadataQuery": [{"metadataType": "urn:trust", "metadataValue": {"uriValue": "urn:high"},
                                "author": ["operator"]}]}
    found = inquire.find_entityByMetadata(metadataQueryBag=query)
    expect(found.entityReference[0].stringKey == f"urn:uuid:{service.lower()}", "find_entityByMetadata")
    services = uddi.find_service(generic="2.0", metadataQueryBag=query)
    expect(services.serviceInfos.serviceInfo[0].serviceKey == service, "find_service with a metadataQueryBag")
    operation = {"portTypeNamespace": "urn:p", "portTypeName": "Pulse", "operationName": "get"}
    part = {"operationReference": operation, "entityType": "https://chappe.example/ns#wsdlOperation"}
    of_part = publish.addMetadataToEntity(authInfo=token, entityReference=part, metadata=known | {"metadataKey": ""})
    operations = wsdl.find_operation(operationMetadataQueryBag=query)
    expect(operations.operationReference[0].operationName == "get", "find_operation")
    interfaces = wsdl.find_interfaceByOperationMetadata(metadataQueryBag=query)
    expect(interfaces.uri == ["urn:p#wsdl11.portType(Pulse)"], "find_interfaceByOperationMetadata")
    expect(len(inquire.get_supportedEntityType().uri) > 10, "get_supportedEntityType")
    for key in (added.metadataKey, of_part.metadataKey):
        expect(publish.deleteMetadata(authInfo=token, metadataKey=key) is True, "deleteMetadata")


def device(url: str, user: str, credential: str, name: str) -> None:
    """Finds the service of a device by its name and by its WSDL."""
    inquire, publish, documents = (Client(f"{url}/uddi/{path}?wsdl").service for path in ("inquiry", "publish", "wsdl"))
    version = {"generic": "2.0"}
    started = time.monotonic()
    found = None
    while not found:
        infos = inquire.find_service(name=[text(name)], **version).serviceInfos
        found = infos.serviceInfo if infos else None
        if not found and time.monotonic() - started > 30:
            raise SystemExit(f"no service {name} after 30 s")
    print(f"ok: find_service finds the device's service {time.monotonic() - started:.2f} s after it was ready")
    key = found[0].serviceKey
    detail = inquire.get_serviceDetail(serviceKey=[key], **version).businessService[0]
    address = detail.bindingTemplates.bindingTemplate[0].accessPoint._value_1
    expect(address.startswith("http://127.0.7.1:"), f"its binding has its address: {address}")
    by_wsdl = documents.findServicesByInterface(interface=f"{name}Service")
    expect([one.serviceKey for one in by_wsdl.serviceInfo] == [key], "findServicesByInterface finds it by its WSDL")
    interface = documents.findInterfaceByOperation(operation="Beat").interfaceInfo[0]
    expect(interface.name == f"{name}Service", "findInterfaceByOperation")
    held = documents.getAllWSDLFiles().documentInfo[0]
    content = documents.getWSDLAdvertContent(key=held.key).content
    expect(b"PeerPulse" in content and len(content) == held.size, "getWSDLAdvertContent")
    operations = documents.getOperationsByURL(url=held.key).operationInfo
    # zeep gives a list of one kind as it is.
    output = documents.getOutputMessageOfOperation(operation=operations[0].iri)
    expect(output[0].partInfo[0].element is not None, "getOutputMessageOfOperation")
    token = publish.get_authToken(userID=user, cred=credential, **version).authInfo
    added = documents.addWSDLFile(authInfo=token, key="urn:zeep", content=content)
    expect(added.documentInfo[0].key == "urn:zeep", "addWSDLFile")
    expect(documents.removeWSDLFile(authInfo=token, key="urn:zeep") == "urn:zeep", "removeWSDLFile")
    refused("E_invalidURLPassed", lambda: documents.addWSDLFile(authInfo=token, url="http://169.254.169.254/"))
    print("done")


def main() -> None:
    if len(sys.argv) > 4:
        return device(*sys.argv[1:])
    url, user, credential = sys.argv[1:]
    clients = [Client(f"{url}/uddi/{name}?wsdl") for name in ("inquiry", "publish")]
    inquire, publish = (client.service for client in clients)
    calls = [len(client.service._binding._operations) for client in clients]
    expect(calls == [11, 16], f"the descriptions have 11 and 16 operations: {calls}")
    version = {"generic": "2.0"}
    refused("E_unknownUser", lambda: publish.get_authToken(userID=user, cred="wrong", **version))
    token = publish.get_authToken(userID=user, cred=credential, **version).authInfo
    authorized = {"authInfo": token, **version}
    colour = publish.save_tModel(tModel=[{"tModelKey": "", "name": text("zeep colours")}], **authorized)
    colour = colour.tModel[0].tModelKey
    service = {
        "serviceKey": "",
        "name": [{"_value_1": "zeep pulse", "lang": "en"}],
        "bindingTemplates": {"bindingTemplate": [{
            "bindingKey": "",
            "accessPoint": {"_value_1": "http://example.com/", "URLType": "http"},
            "tModelInstanceDetails": {"tModelInstanceInfo": [{"tModelKey": colour}]},
        }]},
        "categoryBag": {"keyedReference": [{"tModelKey": colour, "keyValue": "red"}]},
    }
    business = {
        "businessKey": "",
        "name": [text("zeep ward")],
        "contacts": {"contact": [{"personName": "Ada", "phone": [text("1")]}]},
        "businessServices": {"businessService": [service]},
    }
    saved = publish.save_business(businessEntity=[business], **authorized).businessEntity[0]
    key, pulse = saved.businessKey, saved.businessServices.businessService[0]
    expect(len(key) == 36 and pulse.businessKey == key, "save_business with its services")
    expect(saved.contacts.contact[0].personName == "Ada", "the contact comes back")
    found = inquire.find_service(name=[text("zeep")], tModelBag={"tModelKey": [colour]},
                                 categoryBag={"keyedReference": [{"tModelKey": colour, "keyValue": "red"}]},
                                 findQualifiers={"findQualifier": ["sortByDateDesc"]}, maxRows=3, **version)
    expect(found.serviceInfos.serviceInfo[0].serviceKey == pulse.serviceKey, "find_service")
    expect(found.truncated == "false", "the list is whole")
    detail = inquire.get_serviceDetail(serviceKey=[pulse.serviceKey], **version).businessService[0]
    expect(detail.bindingTemplates.bindingTemplate[0].accessPoint._value_1 == "http://example.com/",
           "get_serviceDetail")
    expect(detail.name[0].lang == "en", "the language comes back")
    listed = inquire.find_business(name=[text("zeep")], **version).businessInfos.businessInfo
    expect([one.businessKey for one in listed] == [key], "find_business")
    registered = publish.get_registeredInfo(**authorized)
    expect(len(registered.tModelInfos.tModelInfo) == 1, "get_registeredInfo")
    refused("E_invalidKeyPassed", lambda: inquire.get_businessDetail(businessKey=["none"], **version))
    refused("E_unsupported",
            lambda: inquire.find_tModel(findQualifiers={"findQualifier": ["soundex"]}, **version))
    refused("E_unrecognizedVersion", lambda: inquire.find_business(generic="3.0"))
    metadata(url, token, pulse.serviceKey)
    deleted = publish.delete_business(businessKey=[key], **authorized)
    expect(deleted.result[0].errno == 0, "delete_business")
    publish.delete_tModel(tModelKey=[colour], **authorized)
    publish.discard_authToken(**authorized)
    refused("E_authTokenRequired", lambda: publish.get_registeredInfo(**authorized))
    print("done")


main()
