//! Faults provoked on purpose, and requests that are unusual and valid.

use std::fmt::Write as _;

use chappe_dpws::metadata::{GET_ACTION, GET_RESPONSE_ACTION};
use chappe_dpws::profile::MAX_ENVELOPE_SIZE;
use chappe_soap::{EndpointReference, Envelope, FaultCode, NAMESPACE, v1_1};
use chappe_xml::{Element, Name};

use super::clause::{
    CHUNKED, LARGE, MALFORMED, MUST_UNDERSTAND, NO_ACTION, NO_MESSAGE_ID, NOT_UNDERSTOOD,
    OPTIONAL_HEADER, OTHER_MEDIA, OTHER_ROLE, PREFIXES, REPLY_ELSEWHERE, TWICE, UNKNOWN_ACTION,
    UPGRADE, VERSION,
};
use super::wire::{Post, Wire};
use super::{Check, Exchange, SOAP, so};

/// The namespace of headers that no device knows.
const UNKNOWN: &str = "urn:chappe:conformance";
/// Bytes by which a large envelope exceeds the limit of the profile.
const EXCESS: usize = 8 << 10;

impl<W: Wire> Check<'_, W> {
    /// Messages to the device itself.
    pub(super) async fn messaging(&mut self) {
        self.unknown_action().await;
        self.headers().await;
        self.addressing().await;
        self.versions().await;
        self.http().await;
    }

    /// A Get with the usual headers.
    fn plain_get(&mut self) -> Envelope {
        let device = self.device();
        self.request(&device, GET_ACTION)
    }

    async fn unknown_action(&mut self) {
        let device = self.device();
        let envelope = self.request(&device, "urn:chappe:conformance/NoSuchAction");
        let url = self.url.clone();
        let seen = self
            .ask("a message with an unknown action", &url, &envelope)
            .await;
        let version = self.dialect.addressing();
        let name = version.fault_name("ActionNotSupported");
        self.expect_fault(&UNKNOWN_ACTION, &seen, &[name]);
    }

    /// Headers of other namespaces.
    async fn headers(&mut self) {
        let url = self.url.clone();
        let header = || Element::new(Name::new(UNKNOWN, "Demand")).with_namespace("c", UNKNOWN);
        let mandatory = || header().with_attribute(Name::new(NAMESPACE, "mustUnderstand"), "true");

        let envelope = self.plain_get().with_header(mandatory());
        let sent = "a Get with an unknown mandatory header";
        let seen = self.ask(sent, &url, &envelope).await;
        let code = seen.fault.as_ref().map(|fault| fault.code);
        let is_refused = code == Some(FaultCode::MustUnderstand);
        let problem = || "no fault MustUnderstand".to_owned();
        self.judge(&MUST_UNDERSTAND, &seen, so(is_refused, problem));
        if is_refused {
            let named = seen.response.contains("NotUnderstood");
            let problem = || "the fault has no header NotUnderstood".to_owned();
            self.judge(&NOT_UNDERSTOOD, &seen, so(named, problem));
        }

        let envelope = self.plain_get().with_header(header());
        let sent = "a Get with an unknown header";
        let seen = self.ask(sent, &url, &envelope).await;
        self.expect_answer(&OPTIONAL_HEADER, &seen, GET_RESPONSE_ACTION);

        let role = Name::new(NAMESPACE, "role");
        let other = mandatory().with_attribute(role, "urn:chappe:conformance/role");
        let envelope = self.plain_get().with_header(other);
        let sent = "a Get with a mandatory header for another role";
        let seen = self.ask(sent, &url, &envelope).await;
        self.expect_answer(&OTHER_ROLE, &seen, GET_RESPONSE_ACTION);
    }

    /// The headers of WS-Addressing.
    async fn addressing(&mut self) {
        let url = self.url.clone();
        let version = self.dialect.addressing();
        let required = version.fault_name("MessageAddressingHeaderRequired");
        let invalid = version.fault_name("InvalidAddressingHeader");

        let mut envelope = self.plain_get();
        // The check's own sink, so that a device that answers there disturbs nobody.
        let elsewhere = format!("{}/reply", self.wire.sink());
        envelope.addressing.reply_to = Some(EndpointReference::new(elsewhere));
        let sent = "a Get whose answer is to go elsewhere";
        let seen = self.ask(sent, &url, &envelope).await;
        let relates = [
            invalid.clone(),
            version.name("OnlyAnonymousAddressSupported"),
        ];
        self.expect_fault(&REPLY_ELSEWHERE, &seen, &relates);

        let envelope = self.plain_get();
        let id = envelope.addressing.message_id.as_deref().map(str::to_owned);
        let text = without(&envelope.to_text(), "wsa:Action");
        let sent = "a Get without Action";
        let seen = self.ask_text(sent, &url, text, None).await;
        self.expect_fault(&NO_ACTION, &seen, std::slice::from_ref(&required));

        let text = without(&self.plain_get().to_text(), "wsa:MessageID");
        let sent = "a Get without MessageID";
        let seen = self.ask_text(sent, &url, text, None).await;
        self.expect_fault(&NO_MESSAGE_ID, &seen, std::slice::from_ref(&required));

        let id = id.unwrap_or_default();
        let text = self.plain_get().to_text();
        let second = format!("<wsa:MessageID>{id}</wsa:MessageID></soap:Header>");
        let text = text.replacen("</soap:Header>", &second, 1);
        let seen = self
            .ask_text("a Get with two MessageIDs", &url, text, None)
            .await;
        self.expect_fault(&TWICE, &seen, &[invalid]);
    }

    /// Other versions and spellings of the envelope.
    async fn versions(&mut self) {
        let url = self.url.clone();
        let text = self.plain_get().to_text();
        let text = text.replace(NAMESPACE, v1_1::NAMESPACE);
        let sent = "a Get in an envelope of SOAP 1.1";
        let seen = self.ask_text(sent, &url, text, None).await;
        let is_refused = is_version_mismatch(&seen);
        let problem = || "no fault VersionMismatch".to_owned();
        self.judge(&VERSION, &seen, so(is_refused, problem));
        if is_refused && seen.fault.is_some() {
            let named = seen.response.contains("SupportedEnvelope");
            let problem = || "the fault has no header Upgrade".to_owned();
            self.judge(&UPGRADE, &seen, so(named, problem));
        }

        let envelope = self.plain_get();
        let id = envelope.addressing.message_id.as_deref().map(str::to_owned);
        let mut text = envelope.to_text();
        for (usual, other) in [("soap", "e"), ("wsa", "_a.1")] {
            text = text.replace(&format!("xmlns:{usual}="), &format!("xmlns:{other}="));
            for open in ["<", "</"] {
                text = text.replace(&format!("{open}{usual}:"), &format!("{open}{other}:"));
            }
        }
        let sent = "a Get with unusual prefixes";
        let seen = self.ask_text(sent, &url, text, id.as_deref()).await;
        self.expect_answer(&PREFIXES, &seen, GET_RESPONSE_ACTION);
    }

    /// HTTP around the messages.
    async fn http(&mut self) {
        let url = self.url.clone();
        let post = |content_type, body, chunked| Post {
            url: url.clone(),
            content_type,
            body,
            chunked,
        };
        let text = self.plain_get().to_text();
        let sent = "a Get sent as text/plain";
        let seen = self.post(sent, post("text/plain", text, false), None).await;
        let problem = || format!("the status is {} instead of 415", seen.status);
        let verdict = so(seen.status == 415, problem);
        self.judge(&OTHER_MEDIA, &seen, verdict);

        let text = self.plain_get().to_text();
        let half = text.replace("</soap:Header>", "</soap:Haeder>");
        let seen = self
            .post("a text that is not XML", post(SOAP, half, false), None)
            .await;
        let after = self.get_again("a Get after a text that is not XML").await;
        let is_refused = matches!(seen.status, 400..=599);
        let problem = || "the text is not refused".to_owned();
        self.judge(&MALFORMED, &seen, so(is_refused, problem));
        let problem = || "the device does not answer a Get afterwards".to_owned();
        let verdict = so(after.answer(GET_RESPONSE_ACTION).is_some(), problem);
        self.judge(&MALFORMED, &after, verdict);

        let padding = "x".repeat(MAX_ENVELOPE_SIZE + EXCESS);
        let padding = Element::new(Name::new(UNKNOWN, "Padding")).with_text(padding);
        let envelope = self.plain_get().with_header(padding);
        let sent = "a Get of 40 KiB";
        let seen = self
            .post(sent, post(SOAP, envelope.to_text(), false), None)
            .await;
        let after = self.get_again("a Get after one of 40 KiB").await;
        let is_answered = matches!(seen.status, 200 | 400..=599);
        let problem = || "it is neither answered nor refused".to_owned();
        self.judge(&LARGE, &seen, so(is_answered, problem));
        let problem = || "the device does not answer a Get afterwards".to_owned();
        let verdict = so(after.answer(GET_RESPONSE_ACTION).is_some(), problem);
        self.judge(&LARGE, &after, verdict);

        let text = self.plain_get().to_text();
        let seen = self
            .post("a Get in two chunks", post(SOAP, text, true), None)
            .await;
        let problem = || format!("the status is {} instead of 200", seen.status);
        let verdict = so(seen.status == 200, problem);
        self.judge(&CHUNKED, &seen, verdict);
    }

    async fn get_again(&mut self, sent: &str) -> Exchange {
        let envelope = self.plain_get();
        let url = self.url.clone();
        self.ask(sent, &url, &envelope).await
    }
}

/// The text of a message without the first element of this name.
fn without(text: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let cut = text.split_once(&open).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&close)?;
        let mut whole = before.to_owned();
        whole.write_str(after).ok()?;
        Some(whole)
    });
    cut.unwrap_or_else(|| text.to_owned())
}

/// Whether an answer is a fault VersionMismatch, of SOAP 1.2 or 1.1.
fn is_version_mismatch(seen: &Exchange) -> bool {
    if let Some(fault) = &seen.fault {
        return fault.code == FaultCode::VersionMismatch;
    }
    let Ok(root) = Element::parse(seen.response.as_bytes()) else {
        return false;
    };
    let code = |fault: &Element| {
        let code = fault.child(&Name::local("faultcode"))?;
        let local = code.text().trim().rsplit(':').next()?.to_owned();
        Some(local == "VersionMismatch")
    };
    root.elements()
        .filter(|child| child.name.is(v1_1::NAMESPACE, "Body"))
        .flat_map(Element::elements)
        .any(|fault| code(fault) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_is_cut_out_of_a_text() {
        assert_eq!(without("<a><b>1</b><b>2</b></a>", "b"), "<a><b>2</b></a>");
        assert_eq!(without("<a/>", "b"), "<a/>");
    }
}
