//! The planted deviations of metadata and messages, one for a clause each.

use super::super::wire::Got;
use super::tamper::Stage::{Description, HttpProbe, Messaging};
use super::tamper::{
    Deviation, Tamper, answers, cut, deviation, document, question, status, without,
};

pub(super) static MESSAGES: &[Deviation] = &[
    // Metadata.
    deviation(
        "R0004",
        Description,
        answers!("<wsa:Address>urn:uuid:", "<wsa:Address>uuid:"),
    ),
    deviation(
        "R0005",
        Description,
        answers!("<wsa:Address>urn:uuid:0a", "<wsa:Address>urn:uuid:0b"),
    ),
    deviation(
        "R0007",
        Description,
        Tamper::Answer(|_, mut got| {
            let parameters = "</wsa:Address><wsa:ReferenceParameters><x xmlns='urn:x'/></wsa:ReferenceParameters>";
            got.body = got.body.replacen("</wsa:Address>", parameters, 1);
            Ok(got)
        }),
    ),
    deviation("R0013", Description, status!("transfer/Get", 202)),
    deviation(
        "R0019",
        Description,
        answers!("<wsa:RelatesTo>", "<wsa:RelatesTo>urn:x:"),
    ),
    deviation(
        "R0027",
        Description,
        Tamper::Answer(|_, mut got| {
            let long = format!("<wsa:Address>http://127.0.41.1/{}", "x".repeat(2_048));
            got.body = got.body.replace("<wsa:Address>http:", &long);
            Ok(got)
        }),
    ),
    deviation(
        "R0034",
        Description,
        answers!("2003/05/soap-envelope", "2001/12/soap-envelope"),
    ),
    deviation(
        "R0042",
        Description,
        answers!("<wsa:Address>http:", "<wsa:Address>soap.udp:"),
    ),
    deviation(
        "R2019",
        Description,
        document!("use=\"literal\"", "use=\"encoded\""),
    ),
    deviation(
        "R2020",
        Description,
        document!("wsdl/soap12/", "wsdl/soap/"),
    ),
    deviation("R2031", Description, answers!("Location>", "Elsewhere>")),
    deviation(
        "R2031-document",
        Description,
        Tamper::Document(|got| got.status = 404),
    ),
    deviation(
        "R2031-types",
        Description,
        document!("portType name=\"Thermometer\"", "portType name=\"Other\""),
    ),
    deviation("R2038", Description, answers!("ThisModel", "ThatModel")),
    deviation("R2039", Description, answers!("ThisDevice", "ThatDevice")),
    deviation("R2040", Description, answers!("Relationship", "Relation")),
    deviation(
        "R2044",
        Description,
        answers!("</soap:Body>", "<x xmlns='urn:x'/></soap:Body>"),
    ),
    deviation(
        "DPWS-4.1-manufacturer",
        Description,
        answers!("Manufacturer>", "Maker>"),
    ),
    deviation(
        "DPWS-4.1-model",
        Description,
        answers!("ModelName>", "Name>"),
    ),
    deviation(
        "DPWS-4.2-name",
        Description,
        answers!("FriendlyName>", "Name>"),
    ),
    deviation(
        "DPWS-B-field",
        Description,
        Tamper::Answer(|_, mut got| {
            got.body = got.body.replace("window side", &"w".repeat(256));
            Ok(got)
        }),
    ),
    deviation("DPWS-4.3-id", Description, answers!("ServiceId>", "Id>")),
    deviation(
        "DPWS-4.3-types",
        Description,
        Tamper::Answer(|_, mut got| {
            if let Some(at) = got.body.find("Hosted>") {
                let mut hosted = got.body.split_off(at);
                cut(&mut hosted, "dpws:Types");
                got.body.push_str(&hosted);
            }
            Ok(got)
        }),
    ),
    deviation(
        "WXF-3.1-action",
        Description,
        answers!("transfer/GetResponse", "transfer/Got"),
    ),
    deviation(
        "MEX-5-action",
        Description,
        answers!("mex/GetMetadata/Response", "mex/Got"),
    ),
    deviation(
        "MEX-5-dialect",
        Description,
        answers!(
            "<mex:MetadataSection Dialect=\"http://schemas.xmlsoap.org/wsdl/\"",
            "<mex:MetadataSection Dialect=\"urn:x\"><x xmlns='urn:x'/></mex:MetadataSection>\
         <mex:MetadataSection Dialect=\"http://schemas.xmlsoap.org/wsdl/\""
        ),
    ),
    deviation(
        "SOAP-2-7.1-media",
        Description,
        Tamper::Answer(|_, mut got| {
            got.content_type = "text/xml".to_owned();
            Ok(got)
        }),
    ),
    // Messages.
    deviation(
        "R0001",
        Messaging,
        Tamper::Answer(|post, got| match post.chunked {
            true => Ok(Got {
                status: 411,
                ..Got::default()
            }),
            false => Ok(got),
        }),
    ),
    deviation(
        "R0003",
        Messaging,
        Tamper::Answer(|post, got| match post.body.len() > 32_767 {
            true => Err("connection reset".to_owned()),
            false => Ok(got),
        }),
    ),
    deviation(
        "R0031",
        Messaging,
        Tamper::Question(|text| cut(text, "wsa:ReplyTo")),
    ),
    deviation(
        "R0040",
        Messaging,
        Tamper::Answer(|_, mut got| {
            if got.body.contains(":Fault>") {
                got.body = got.body.replace("<wsa:RelatesTo>", "<wsa:RelatesTo>urn:x:");
            }
            Ok(got)
        }),
    ),
    deviation(
        "WSA-SOAP-6.4.4",
        Messaging,
        question!(
            "urn:chappe:conformance/NoSuchAction" => "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get"
        ),
    ),
    deviation(
        "WSA-SOAP-6.4.2-action",
        Messaging,
        Tamper::Answer(|post, got| without("wsa:Action", post, got)),
    ),
    deviation(
        "WSA-SOAP-6.4.2-id",
        Messaging,
        Tamper::Answer(|post, got| without("wsa:MessageID", post, got)),
    ),
    deviation(
        "WSA-SOAP-6.4.1-twice",
        Messaging,
        Tamper::Question(|text| {
            if text.matches("<wsa:MessageID>").count() == 2 {
                *text = text.replacen("<wsa:MessageID>", "<wsa:Other>", 1);
                *text = text.replacen("</wsa:MessageID>", "</wsa:Other>", 1);
            }
        }),
    ),
    deviation(
        "WSA-SOAP-6-action",
        Messaging,
        answers!("addressing/fault", "addressing/failure"),
    ),
    deviation(
        "SOAP-2-7.5-status",
        Messaging,
        Tamper::Answer(|_, mut got| {
            got.status = 200;
            Ok(got)
        }),
    ),
    deviation(
        "SOAP-2-7.5-415",
        Messaging,
        Tamper::Answer(|post, mut got| {
            if post.content_type == "text/plain" {
                got.status = 200;
            }
            Ok(got)
        }),
    ),
    deviation(
        "SOAP-2-7.5-malformed",
        Messaging,
        status!("soap:Haeder", 202),
    ),
    deviation(
        "SOAP-1-5.4.8",
        Messaging,
        question!("soap:mustUnderstand=\"true\"" => ""),
    ),
    deviation(
        "SOAP-1-5.4.8-named",
        Messaging,
        answers!("NotUnderstood", "Unknown"),
    ),
    deviation(
        "SOAP-1-5.4.7",
        Messaging,
        answers!("VersionMismatch", "Client"),
    ),
    deviation(
        "SOAP-1-2.4-role",
        Messaging,
        status!("conformance/role", 500),
    ),
    deviation(
        "SOAP-1-2.4-optional",
        Messaging,
        Tamper::Answer(|post, got| {
            let is_optional = post.body.contains("Demand") && !post.body.contains("mustUnderstand");
            Ok(if is_optional {
                Got {
                    status: 500,
                    ..Got::default()
                }
            } else {
                got
            })
        }),
    ),
    deviation("NS-prefixes", Messaging, status!("_a.1:Action", 400)),
    // Probes by HTTP.
    deviation("R1015", HttpProbe, status!("2009/01/Probe<", 404)),
    deviation(
        "R1021",
        HttpProbe,
        Tamper::Answer(|post, mut got| {
            if post.body.contains("/Probe<") {
                got.body = got.body.replace("urn:uuid:0a", "urn:uuid:0b");
            }
            Ok(got)
        }),
    ),
    deviation(
        "R1022",
        HttpProbe,
        Tamper::Question(|text| cut(text, "d:Types")),
    ),
];
