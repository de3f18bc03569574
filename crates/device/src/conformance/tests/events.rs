//! The planted deviations of events and discovery, one for a clause each.

use super::super::wire::{Got, Post};
use super::tamper::Stage::{Discovery, Eventing};
use super::tamper::{
    Deviation, Tamper, answers, cut, datagrams, deviation, notification, question, set_attribute,
    status,
};
use super::{ALARM, ENDPOINT, REPORT};

pub(super) static EVENTS: &[Deviation] = &[
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
