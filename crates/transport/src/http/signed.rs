//! Signed SOAP over the client: requests are signed, and answers judged before they are read.
//!
//! Each signed request has an identifier of its own, which nobody can predict. Its answer has to relate to it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use chappe_identity::{CertificateName, Contact};
use chappe_soap::security::{Answered, Expected, Mode, SecurityError};
use chappe_soap::{AddressingVersion, Body, Envelope, Fault, FaultCode, v1_1};
use chappe_xml::{Element, Limits, Name};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};

use super::soap::read_answer;
use super::{Answer, Client, Error};
use crate::signatures::{Signing, random_urn};

/// The media type of SOAP 1.1.
const SOAP_1_1_CONTENT_TYPE: &str = "text/xml; charset=utf-8";
/// The header of SOAP 1.1 for the intent of a request, which is in the Body of UDDI's.
const SOAP_ACTION: HeaderName = HeaderName::from_static("soapaction");

/// The answer to a request that may be signed.
#[derive(Debug)]
pub struct Exchanged {
    /// The answer, possibly a fault; `None` if the request was accepted without one.
    pub envelope: Option<Envelope>,
    /// The signer of the answer, if it is signed. An absent answer is not.
    pub signer: Option<CertificateName>,
}

impl Client {
    /// Like [`Client::exchange_soap`], with a signed request, if there is a certificate to sign with, and an answer
    /// that is judged by the mode. If earlier answers of the peer are signed by `signer`, this one has to be.
    ///
    /// # Errors
    /// The request cannot be signed, there is no answer, or it is not accepted.
    pub async fn exchange_signed(
        &self,
        contact: &Contact,
        envelope: &Envelope,
        signing: Option<&Signing>,
        signer: Option<&CertificateName>,
    ) -> Result<Exchanged, Error> {
        let Some(signing) = signing.filter(|signing| signing.mode != Mode::Off) else {
            let envelope = self.exchange_soap(contact, envelope).await?;
            let signer = None;
            return Ok(Exchanged { envelope, signer });
        };
        let peer = contact.address;
        let message_id = random_urn().map_err(|_| refused(peer)(SecurityError::Random))?;
        let mut sent = envelope.clone();
        let own_id = sent
            .addressing
            .message_id
            .replace(message_id.clone().into());
        let action = sent.addressing.action.clone();
        let text = self.signed_text(contact, signing, sent).await?;
        let answer = self.post_text(contact, &action, text).await?;
        let judge = Judge {
            signing: signing.clone(),
            signer: signer.cloned(),
            message_id,
            peer,
            bytes: self.limits().body_bytes,
        };
        let judged = self.parsers().run(move || judge.envelope(&answer)).await;
        let mut exchanged = judged.unwrap_or(Err(Error::Parser(peer)))?;
        if let Some(envelope) = &mut exchanged.envelope
            && exchanged.signer.is_some()
        {
            // The machines know the request by the identifier that they gave it.
            envelope.addressing.relates_to = own_id;
        }
        Ok(exchanged)
    }

    /// Sends a one-way message, signed if there is a certificate to sign with, and ignores the content of the
    /// answer.
    ///
    /// # Errors
    /// The message cannot be signed, or there is no answer.
    pub async fn post_signed(
        &self,
        contact: &Contact,
        envelope: Envelope,
        signing: &Signing,
    ) -> Result<Answer, Error> {
        let action = envelope.addressing.action.clone();
        let text = self.signed_text(contact, signing, envelope).await?;
        self.post_text(contact, &action, text).await
    }

    /// Calls an interface of SOAP 1.1, such as UDDI's, with a signed message, and returns the element in the
    /// answer's Body. The answer is read only as far as it is signed, unless the mode allows it to be unsigned.
    ///
    /// # Errors
    /// The request cannot be signed, there is no answer, or it is a fault or not accepted: above all, it relates
    /// to another request.
    pub async fn call_signed(
        &self,
        contact: &Contact,
        body: Element,
        signing: &Signing,
    ) -> Result<Element, Error> {
        let peer = contact.address;
        let message_id = random_urn().map_err(|_| refused(peer)(SecurityError::Random))?;
        let envelope = v1_1_envelope(&message_id, body);
        let signatures = Arc::clone(&signing.signatures);
        let text = self.parsers().run(move || {
            let signed = signatures.sign(&envelope)?;
            Ok(signed.unwrap_or_else(|| envelope.to_text()))
        });
        let text = text.await.unwrap_or(Err(SecurityError::Random));
        let text = text.map_err(refused(peer))?;
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static(SOAP_1_1_CONTENT_TYPE);
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(SOAP_ACTION, HeaderValue::from_static("\"\""));
        let answer = self.request(contact, Method::POST, headers, Bytes::from(text));
        let answer = answer.await?;
        let judge = Judge {
            signing: signing.clone(),
            signer: None,
            message_id,
            peer,
            bytes: self.limits().body_bytes,
        };
        let judged = self.parsers().run(move || judge.body(&answer)).await;
        judged.unwrap_or(Err(Error::Parser(peer)))
    }

    async fn signed_text(
        &self,
        contact: &Contact,
        signing: &Signing,
        envelope: Envelope,
    ) -> Result<String, Error> {
        let (peer, signing) = (contact.address, signing.clone());
        let signed = self.parsers().run(move || signing.text(&envelope)).await;
        let signed = signed.map_err(|_| Error::Parser(peer))?;
        signed.map_err(refused(peer))
    }
}

fn refused(peer: SocketAddr) -> impl FnOnce(SecurityError) -> Error {
    move |source| Error::Signature {
        peer,
        source: Box::new(source),
    }
}

/// A message of SOAP 1.1 with an identifier, to which the answer can relate.
fn v1_1_envelope(message_id: &str, body: Element) -> Element {
    let element = |local| Element::new(Name::new(v1_1::NAMESPACE, local));
    let version = AddressingVersion::V200508;
    let id = Element::new(version.name("MessageID")).with_text(message_id.to_owned());
    element("Envelope")
        .with_namespace("soap", v1_1::NAMESPACE)
        .with_namespace("wsa", version.namespace())
        .with_child(element("Header").with_child(id))
        .with_child(element("Body").with_child(body))
}

/// What an answer is judged by.
struct Judge {
    signing: Signing,
    signer: Option<CertificateName>,
    message_id: String,
    peer: SocketAddr,
    bytes: usize,
}

impl Judge {
    fn judge(&self, answer: &Answer) -> Result<Answered, Error> {
        let (peer, status) = (self.peer, answer.status);
        let expected = Expected {
            message_id: &self.message_id,
            signer: self.signer.as_ref(),
        };
        let (signatures, mode) = (&self.signing.signatures, self.signing.mode);
        let judged = signatures.admit_answer(&answer.body, mode, self.limits(), expected);
        judged.map_err(|error| match error {
            // A server without SOAP answers errors with a page.
            SecurityError::Xml(_) | SecurityError::Envelope(_) if !status.is_success() => {
                Error::Status { peer, status }
            }
            error => refused(peer)(error),
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            bytes: self.bytes,
            ..Limits::default()
        }
    }

    /// The answer as a message of SOAP 1.2.
    fn envelope(&self, answer: &Answer) -> Result<Exchanged, Error> {
        let unsigned = || {
            let envelope = read_answer(self.peer, answer, self.bytes)?;
            let signer = None;
            Ok(Exchanged { envelope, signer })
        };
        if answer.body.is_empty() {
            return unsigned();
        }
        let Answered::Signed(verified) = self.judge(answer)? else {
            return unsigned();
        };
        let (peer, status, signer) = (self.peer, answer.status, verified.signer());
        let envelope = verified.into_envelope();
        let envelope = envelope.map_err(|source| Error::Soap { peer, source })?;
        match status.is_success() || envelope.fault().is_some() {
            true => Ok(Exchanged {
                envelope: Some(envelope),
                signer: Some(signer),
            }),
            false => Err(Error::Status { peer, status }),
        }
    }

    /// The element in the Body of an answer of SOAP 1.1.
    fn body(&self, answer: &Answer) -> Result<Element, Error> {
        let (peer, status) = (self.peer, answer.status);
        let document = match self.judge(answer)? {
            Answered::Signed(verified) => Bytes::from(verified.to_text()),
            Answered::Unsigned => answer.body.clone(),
        };
        let limits = Limits {
            bytes: self.bytes.max(document.len()),
            ..Limits::default()
        };
        let envelope = v1_1::Envelope::parse(&document, limits);
        let body = match envelope {
            Ok(envelope) => envelope.body,
            Err(_) if !status.is_success() => return Err(Error::Status { peer, status }),
            Err(source) => return Err(Error::Soap { peer, source }),
        };
        if body.name.is(v1_1::NAMESPACE, "Fault") {
            let fault = Box::new(fault_of(&body));
            return Err(Error::Fault { peer, fault });
        }
        match status {
            StatusCode::OK => Ok(body),
            status => Err(Error::Status { peer, status }),
        }
    }
}

/// A fault of SOAP 1.1 in the terms of SOAP 1.2.
fn fault_of(body: &Element) -> Fault {
    let [code, text, detail] =
        ["faultcode", "faultstring", "detail"].map(|local| body.child(&Name::local(local)));
    let qname = code.map(|code| code.text().into_owned());
    let qname = qname.unwrap_or_default();
    let client = qname.trim().rsplit(':').next() == Some("Client");
    let detail = detail.map(|detail| detail.elements().cloned().map(Body::from).collect());
    Fault {
        code: match client {
            true => FaultCode::Sender,
            false => FaultCode::Receiver,
        },
        subcode: code.and_then(|code| code.resolve(&[body], qname.trim())),
        reason: text
            .map(|text| text.text().into_owned())
            .unwrap_or_default()
            .into(),
        detail: detail.unwrap_or_default(),
    }
}
