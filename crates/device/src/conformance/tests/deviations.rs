//! The planted deviations, one for a clause each.

use super::super::wire::{Got, Post, Posted};
use super::{ALARM, ENDPOINT, REPORT};

/// The part of the check in which a deviation shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Description,
    Messaging,
    HttpProbe,
    Eventing,
    Discovery,
}

/// What is changed on its way.
#[derive(Clone, Copy)]
pub(super) enum Tamper {
    /// The question: the device overlooks a part of it.
    Question(fn(&mut String)),
    /// The answer to a message by HTTP.
    Answer(fn(&Post, Got) -> Result<Got, String>),
    /// The answer to an HTTP GET.
    Document(fn(&mut Got)),
    /// The answers to a question by multicast.
    Datagrams(fn(&str, &mut Vec<String>)),
    /// An event.
    Notification(fn(&mut Posted)),
}

pub(super) struct Deviation {
    pub(super) clause: &'static str,
    pub(super) stage: Stage,
    pub(super) tamper: Tamper,
}

const fn deviation(clause: &'static str, stage: Stage, tamper: Tamper) -> Deviation {
    Deviation {
        clause,
        stage,
        tamper,
    }
}

/// Replaces text in every answer to a message.
macro_rules! answers {
    ($from:expr, $to:expr) => {
        Tamper::Answer(|_, mut got| {
            got.body = got.body.replace($from, $to);
            Ok(got)
        })
    };
}

/// Answers with this status where the question or the answer has a text.
macro_rules! status {
    ($text:expr, $status:literal) => {
        Tamper::Answer(
            |post, got| match post.body.contains($text) || got.body.contains($text) {
                true => Ok(Got {
                    status: $status,
                    ..Got::default()
                }),
                false => Ok(got),
            },
        )
    };
}

/// Replaces text in every question.
macro_rules! question {
    ($($from:expr => $to:expr),*) => {
        Tamper::Question(|text| {
            $(*text = text.replace($from, $to);)*
        })
    };
}

/// Replaces text in every answer to a question with a text.
macro_rules! datagrams {
    ($question:expr, $from:expr, $to:expr) => {
        Tamper::Datagrams(|question, answers| {
            if question.contains($question) {
                for answer in answers {
                    *answer = answer.replace($from, $to);
                }
            }
        })
    };
}

macro_rules! document {
    ($from:expr, $to:expr) => {
        Tamper::Document(|got| got.body = got.body.replace($from, $to))
    };
}

macro_rules! notification {
    ($from:expr, $to:expr) => {
        Tamper::Notification(|posted| posted.body = posted.body.replace($from, $to))
    };
}

/// Removes an element, from `<name` to `</name>`.
fn cut(text: &mut String, name: &str) {
    let close = format!("</{name}>");
    let range = text.find(&format!("<{name}")).zip(text.rfind(&close));
    if let Some((from, to)) = range.filter(|(from, to)| from < to) {
        text.replace_range(from..to + close.len(), "");
    }
}

/// Sets every value of an attribute.
fn set_attribute(text: &str, name: &str, value: &str) -> String {
    let open = format!("{name}=\"");
    let mut parts = text.split(&open);
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once('"').map_or("", |(_, rest)| rest);
        changed.push_str(&format!("{open}{value}\"{rest}"));
    }
    changed
}

fn without(name: &str, post: &Post, got: Got) -> Result<Got, String> {
    let is_without = !post.body.contains(name);
    Ok(if is_without {
        Got {
            status: 200,
            ..Got::default()
        }
    } else {
        got
    })
}

use Stage::{Description, Discovery, Eventing, HttpProbe, Messaging};

pub(super) static DEVIATIONS: &[Deviation] = &[
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
    // Events.
    deviation("R3009", Eventing, status!("SubscribeResponse", 500)),
    deviation(
        "R3011",
        Eventing,
        Tamper::Notification(|posted| {
            posted.body = posted.body.replace(REPORT, ALARM);
        }),
    ),
    deviation(
        "R3016",
        Eventing,
        Tamper::Answer(|_, mut got| {
            if let Some((head, tail)) = got.body.split_once("<wse:Expires>") {
                let rest = tail.split_once('<').map_or("", |(_, rest)| rest);
                got.body = format!("{head}<wse:Expires>2099-01-01T00:00:00Z<{rest}");
            }
            Ok(got)
        }),
    ),
    deviation(
        "R3020",
        Eventing,
        question!("urn:chappe:conformance/NoSuchEvent" => REPORT),
    ),
    deviation(
        "WSE-3.1-response",
        Eventing,
        answers!("SubscriptionManager>", "Manager>"),
    ),
    deviation(
        "WSE-3.1-manager",
        Eventing,
        Tamper::Answer(|_, mut got| {
            if got.body.contains("SubscribeResponse") {
                got.body = got.body.replace("<wsa:Address>http:", "<wsa:Address>urn:");
            }
            Ok(got)
        }),
    ),
    deviation(
        "WSE-3.1-distinct",
        Eventing,
        Tamper::Answer(|_, mut got| {
            if let Some((head, tail)) = got.body.split_once("<wsa:Address>http:")
                && got.body.contains("SubscribeResponse")
            {
                let rest = tail.split_once('<').map_or("", |(_, rest)| rest);
                got.body = format!("{head}<wsa:Address>http://127.0.41.3:1/manager<{rest}");
            }
            Ok(got)
        }),
    ),
    deviation(
        "WSE-3.1-mode",
        Eventing,
        question!(
            "urn:chappe:conformance/mode" => "http://schemas.xmlsoap.org/ws/2004/08/eventing/DeliveryModes/Push"
        ),
    ),
    deviation(
        "WSE-3.1-filter",
        Eventing,
        question!(
            "urn:chappe:conformance/filter\">x<" => "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Action\">y<",
            ">y<" => ">https://example.org/thermometer/Thermometer/Report<"
        ),
    ),
    deviation(
        "WSE-3.1-expires",
        Eventing,
        question!(">PT0S<" => ">PT60S<"),
    ),
    deviation(
        "WSE-3.1-sink",
        Eventing,
        Tamper::Answer(|post, got| {
            let is_without = post.body.contains("wse:Subscribe") && !post.body.contains("NotifyTo");
            Ok(if is_without {
                Got {
                    status: 200,
                    ..Got::default()
                }
            } else {
                got
            })
        }),
    ),
    deviation("WSE-3.1-expired", Eventing, Tamper::Answer(forgiven)),
    deviation("WSE-3.2-unknown", Eventing, Tamper::Answer(forgiven)),
    deviation(
        "WSE-3.2-response",
        Eventing,
        answers!("eventing/RenewResponse", "eventing/Renewed"),
    ),
    deviation(
        "WSE-3.3-rest",
        Eventing,
        Tamper::Answer(|_, mut got| {
            if let Some((head, tail)) = got.body.split_once("<wse:Expires>")
                && got.body.contains("GetStatusResponse")
            {
                let rest = tail.split_once('<').map_or("", |(_, rest)| rest);
                got.body = format!("{head}<wse:Expires>PT2H<{rest}");
            }
            Ok(got)
        }),
    ),
    deviation(
        "WSE-3.4-response",
        Eventing,
        answers!("eventing/UnsubscribeResponse", "eventing/Ended"),
    ),
    // The device keeps the subscription.
    deviation(
        "WSE-3.4-silence",
        Eventing,
        question!(
            "eventing/Unsubscribe" => "eventing/GetStatus",
            "wse:Unsubscribe" => "wse:GetStatus"
        ),
    ),
    deviation(
        "WSE-4-action",
        Eventing,
        notification!("Thermometer/Report", "Thermometer/Other"),
    ),
    deviation(
        "WSE-4-to",
        Eventing,
        notification!("<wsa:To>", "<wsa:To>urn:x:"),
    ),
    deviation(
        "WSA-2.3-parameters",
        Eventing,
        notification!("Mark", "Park"),
    ),
    deviation(
        "WSA-SOAP-3.3-marked",
        Eventing,
        notification!("IsReferenceParameter", "IsParameter"),
    ),
    // Discovery.
    deviation(
        "R0029",
        Discovery,
        Tamper::Datagrams(|_, answers| {
            for answer in answers {
                answer.push_str(&" ".repeat(1_500));
            }
        }),
    ),
    deviation(
        "R1020",
        Discovery,
        datagrams!("", "dpws:Device", "dpws:Apparatus"),
    ),
    deviation(
        "WSD-5.3-match",
        Discovery,
        Tamper::Datagrams(|question, answers| {
            if question.contains("/Probe<") {
                answers.clear();
            }
        }),
    ),
    deviation(
        "WSD-5.3-message",
        Discovery,
        datagrams!("/Probe<", "2009/01/ProbeMatches<", "2009/01/Hello<"),
    ),
    deviation(
        "WSD-5.3-relates",
        Discovery,
        datagrams!("/Probe<", "<wsa:RelatesTo>", "<wsa:RelatesTo>urn:x:"),
    ),
    deviation(
        "WSD-5.3-version",
        Discovery,
        datagrams!("/Probe<", "MetadataVersion>", "Version>"),
    ),
    deviation(
        "WSD-5.1-type",
        Discovery,
        Tamper::Question(|text| cut(text, "d:Types")),
    ),
    deviation(
        "WSD-5.1-types",
        Discovery,
        Tamper::Question(|text| {
            if text.contains("Nothing") && text.contains("dpws:Device") {
                cut(text, "d:Types");
            }
        }),
    ),
    deviation(
        "WSD-5.1-scope",
        Discovery,
        Tamper::Question(|text| cut(text, "d:Scopes")),
    ),
    deviation(
        "WSD-5.1-rule",
        Discovery,
        Tamper::Question(|text| {
            if text.contains("conformance/rule") {
                cut(text, "d:Scopes");
            }
        }),
    ),
    deviation(
        "WSD-5.1-own-scope",
        Discovery,
        Tamper::Datagrams(|question, answers| {
            if question.contains("ward/3") {
                answers.clear();
            }
        }),
    ),
    deviation(
        "WSD-6.3-match",
        Discovery,
        Tamper::Datagrams(|question, answers| {
            if question.contains("/Resolve<") {
                answers.clear();
            }
        }),
    ),
    deviation(
        "WSD-6.3-relates",
        Discovery,
        datagrams!("/Resolve<", "<wsa:RelatesTo>", "<wsa:RelatesTo>urn:x:"),
    ),
    deviation(
        "WSD-6.3-addresses",
        Discovery,
        Tamper::Datagrams(|question, answers| {
            for answer in answers
                .iter_mut()
                .filter(|_| question.contains("/Resolve<"))
            {
                cut(answer, "d:XAddrs");
            }
        }),
    ),
    deviation(
        "WSD-6.2-other",
        Discovery,
        Tamper::Question(|text| {
            *text = text.replace("urn:uuid:6c0f6ec4-9d6c-4f0b-8b43-000000000000", ENDPOINT);
        }),
    ),
    deviation(
        "WSD-7-sequence",
        Discovery,
        datagrams!("", "AppSequence", "Sequence"),
    ),
    deviation(
        "WSD-7-number",
        Discovery,
        Tamper::Datagrams(|_, answers| {
            for answer in answers {
                *answer = set_attribute(answer, "MessageNumber", "7");
            }
        }),
    ),
    deviation(
        "WSD-7-instance",
        Discovery,
        Tamper::Datagrams(|_, answers| {
            for answer in answers {
                *answer = answer
                    .replace("InstanceId=", "Swap=")
                    .replace("MessageNumber=", "InstanceId=")
                    .replace("Swap=", "MessageNumber=");
            }
        }),
    ),
    deviation(
        "UDP-4-copies",
        Discovery,
        Tamper::Datagrams(|_, answers| {
            if let Some(first) = answers.first().cloned() {
                answers.push(first + " ");
            }
        }),
    ),
    deviation(
        "UDP-4-once",
        Discovery,
        Tamper::Datagrams(|_, answers| {
            if let Some(first) = answers.first().cloned() {
                answers
                    .push(first.replace("<wsa:MessageID>urn:uuid:", "<wsa:MessageID>urn:uuid:0"));
            }
        }),
    ),
];

/// Answers every Renew.
fn forgiven(post: &Post, got: Got) -> Result<Got, String> {
    let is_fault = got.body.contains(":Fault>");
    if !is_fault || !post.body.contains("eventing/Renew<") {
        return Ok(got);
    }
    let id = post.body.split("<wsa:MessageID>").nth(1);
    let id = id
        .and_then(|rest| rest.split('<').next())
        .unwrap_or_default();
    let body = format!(
        "<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope' \
         xmlns:wsa='http://www.w3.org/2005/08/addressing'><s:Header>\
         <wsa:Action>http://schemas.xmlsoap.org/ws/2004/08/eventing/RenewResponse</wsa:Action>\
         <wsa:RelatesTo>{id}</wsa:RelatesTo></s:Header><s:Body/></s:Envelope>"
    );
    Ok(Got {
        status: 200,
        body,
        ..got
    })
}
