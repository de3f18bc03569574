//! Metadata and WSDL documents over SOAP.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::service::Requests;
use super::soap::Soap;
use super::under_test::between;
use crate::Error;

const METADATA: &str = "/uddi/metadata";
const WSDL: &str = "/uddi/wsdl";
const GRIMOIRES: &str = "http://www.grimoires.org/metadata.xsd";
const UDDI: &str = "urn:uddi-org:api_v2";
/// The type of a piece that each service has, with a value of its own.
const SERIAL: &str = "urn:bench:serial";
/// The type of a piece that each service has, with one of few values.
const QUALITY: &str = "urn:bench:quality";
/// Values of the common piece.
const QUALITIES: usize = 20;

fn quality(number: usize) -> String {
    format!("grade {}", number % QUALITIES)
}

impl Soap {
    fn author(&self) -> String {
        format!("<u:authInfo xmlns:u=\"{UDDI}\">{}</u:authInfo>", self.token)
    }

    /// addMetadataToEntity: a new piece about `subject`, or the new value of a known one.
    pub(super) fn attach(
        &mut self,
        subject: &str,
        known: &str,
        (piece_type, value): (&str, &str),
    ) -> Result<(String, Duration), Error> {
        let author = self.author();
        let request = format!(
            "<addMetadataToEntity xmlns=\"{GRIMOIRES}\">{author}<entityReference><stringKey>{subject}</stringKey>\
             </entityReference><metadata metadataKey=\"{known}\"><metadataType>{piece_type}</metadataType>\
             <metadataValue><stringValue>{value}</stringValue></metadataValue></metadata></addMetadataToEntity>"
        );
        let (answer, time) = self.call(METADATA, &request)?;
        let key = between(&answer, "metadataKey=\"", "\"")?;
        Ok((key.to_owned(), time))
    }

    /// deleteMetadata.
    pub(super) fn detach(&mut self, key: &str) -> Result<Duration, Error> {
        let author = self.author();
        let request = format!(
            "<deleteMetadata xmlns=\"{GRIMOIRES}\">{author}<metadataKey>{key}</metadataKey></deleteMetadata>"
        );
        Ok(self.call(METADATA, &request)?.1)
    }

    /// The two pieces of a service; returns the time of each.
    pub(super) fn describe(
        &mut self,
        service: &str,
        number: usize,
    ) -> Result<[Duration; 2], Error> {
        let serial = format!("SN-{number:09}");
        let (_, first) = self.attach(service, "", (SERIAL, &serial))?;
        let (_, second) = self.attach(service, "", (QUALITY, &quality(number)))?;
        Ok([first, second])
    }

    /// find_service by both pieces, the rare one first or last, then get_serviceDetail.
    pub(super) fn inquire_by_metadata(
        &mut self,
        number: usize,
        is_rare_first: bool,
    ) -> Result<Duration, Error> {
        let query = |piece_type: &str, value: &str| {
            format!(
                "<metadataQuery><metadataType>{piece_type}</metadataType><metadataValue><stringValue>{value}\
                 </stringValue></metadataValue></metadataQuery>"
            )
        };
        let serial = format!("SN-{number:09}");
        let mut queries = [query(SERIAL, &serial), query(QUALITY, &quality(number))];
        if !is_rare_first {
            queries.reverse();
        }
        let request = format!(
            "<find_service xmlns=\"{GRIMOIRES}\" generic=\"2.0\"><metadataQueryBag>{}</metadataQueryBag></find_service>",
            queries.concat()
        );
        let (found, time) = self.call(METADATA, &request)?;
        let key = between(&found, "serviceKey=\"", "\"")?;
        let (detail, more) = self.call(self.address.inquiry, &Requests::detail(key))?;
        let name = format!("Pulse of ward {}", super::service::name_of(number));
        match detail.contains(&name) {
            true => Ok(time + more),
            false => Err(Error::Failed(format!("{name} is not in {detail}"))),
        }
    }

    /// addWSDLFile, or addWSDLFileAdvert with the services of the document for a business.
    pub(super) fn add_wsdl(
        &mut self,
        number: usize,
        business: Option<&str>,
    ) -> Result<Duration, Error> {
        let kind = if business.is_some() { "advert" } else { "file" };
        let name = match business {
            Some(_) => "addWSDLFileAdvert",
            None => "addWSDLFile",
        };
        let text = document(&format!("urn:bench:{kind}:{number}"));
        let (token, content) = (&self.token, STANDARD.encode(text));
        let business = business.map(|key| format!("<businessKey>{key}</businessKey>"));
        let request = format!(
            "<{name} xmlns=\"https://chappe.example/ns/wsdl-registry\"><authInfo>{token}</authInfo>\
             <key>urn:bench:{kind}:{number}:document</key><content>{content}</content>{}</{name}>",
            business.unwrap_or_default()
        );
        Ok(self.call(WSDL, &request)?.1)
    }
}

/// A WSDL document of one port type with two operations, one binding and one service.
fn document(namespace: &str) -> String {
    let operation = |name: &str| {
        format!(
            "<operation name=\"{name}\"><input message=\"t:{name}\"/><output message=\"t:{name}Response\"/></operation>"
        )
    };
    let message = |name: &str| {
        format!("<message name=\"{name}\"><part name=\"body\" element=\"t:{name}\"/></message>")
    };
    let element = |name: &str| format!("<xs:element name=\"{name}\" type=\"xs:double\"/>");
    let messages = ["Measure", "MeasureResponse", "Alarm", "AlarmResponse"];
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<definitions xmlns=\"http://schemas.xmlsoap.org/wsdl/\" \
         xmlns:t=\"{namespace}\" xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:soap=\"http://schemas.xmlsoap.org/wsdl/soap/\" targetNamespace=\"{namespace}\"><types><xs:schema \
         targetNamespace=\"{namespace}\">{}</xs:schema></types>{}<portType name=\"Pulse\">{}{}</portType>\
         <binding name=\"PulseSoap\" type=\"t:Pulse\"><soap:binding transport=\"http://schemas.xmlsoap.org/soap/http\"/>\
         </binding><service name=\"PulseService\"><port name=\"Pulse\" binding=\"t:PulseSoap\"><soap:address \
         location=\"http://192.0.2.1/pulse\"/></port></service></definitions>",
        messages.map(element).concat(),
        messages.map(message).concat(),
        operation("Measure"),
        operation("Alarm"),
    )
}
