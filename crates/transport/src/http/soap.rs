//! SOAP over the client (SOAP 1.2 part 2, section 7; RFC 3902 for the media type).

use std::net::SocketAddr;

use bytes::Bytes;
use chappe_dpws::exi::ServiceSchema;
use chappe_identity::Contact;
use chappe_soap::{Addressing, AddressingVersion, Envelope, LazyEnvelope};
use chappe_xml::Limits;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};

use super::{Answer, Client, Error, exi};

/// The media type of SOAP 1.2, without parameters.
pub(super) const SOAP_MEDIA_TYPE: &str = "application/soap+xml";
/// The media type of SOAP 1.2.
pub(super) const SOAP_CONTENT_TYPE: &str = "application/soap+xml; charset=utf-8";

impl Client {
    /// Sends a message and reads the answer; `None` if it was accepted without one (status 202).
    ///
    /// # Errors
    /// There is no answer, or it is a fault or not a SOAP message.
    pub async fn post_soap(
        &self,
        contact: &Contact,
        envelope: &Envelope,
    ) -> Result<Option<Envelope>, Error> {
        let answer = self.exchange_soap(contact, envelope).await?;
        match answer.as_ref().and_then(Envelope::fault) {
            None => Ok(answer),
            Some(fault) => Err(Error::Fault {
                peer: contact.address,
                fault: Box::new(fault),
            }),
        }
    }

    /// Like [`Client::post_soap`], but returns a fault as an answer.
    ///
    /// # Errors
    /// There is no answer, or it is not a SOAP message.
    pub async fn exchange_soap(
        &self,
        contact: &Contact,
        envelope: &Envelope,
    ) -> Result<Option<Envelope>, Error> {
        self.exchange_text(contact, &envelope.addressing, envelope.to_text(), None)
            .await
    }

    /// Like [`Client::exchange_soap`], with bodies that are made and read by their types. Both messages may be EXI by
    /// the schema of the service, if there is one.
    ///
    /// # Errors
    /// There is no answer, or it is not a SOAP message.
    pub async fn exchange_lazy(
        &self,
        contact: &Contact,
        envelope: &LazyEnvelope,
        schema: Option<&ServiceSchema>,
    ) -> Result<Option<LazyEnvelope>, Error> {
        let addressing = &envelope.head.addressing;
        self.exchange_text(contact, addressing, envelope.to_text(), schema)
            .await
    }

    async fn exchange_text<T: Received>(
        &self,
        contact: &Contact,
        addressing: &Addressing,
        text: String,
        schema: Option<&ServiceSchema>,
    ) -> Result<Option<T>, Error> {
        let kind = match addressing.version {
            // Devices of the 2005 dialect expect what Windows sends; wsdd2 refuses parameters.
            AddressingVersion::V200408 => HeaderValue::from_static(SOAP_MEDIA_TYPE),
            AddressingVersion::V200508 => content_type(&addressing.action),
        };
        let answer = self.post(contact, kind, text, schema).await?;
        let (peer, bound) = (contact.address, self.limits().body_bytes);
        let bytes = answer.body.len();
        let read = move || read_answer(peer, &answer, bound);
        let read = self.parsers().run_if_large(bytes, read).await;
        read.unwrap_or(Err(Error::Parser(peer)))
    }

    /// Sends the text of a message with this action, as EXI where the peer accepts that, and ignores the content of
    /// the answer. EXI that the peer did not understand, which it says with status 400, 415 or 501, is sent again as
    /// text.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn post_text(
        &self,
        contact: &Contact,
        action: &str,
        text: String,
    ) -> Result<Answer, Error> {
        self.post_text_by(contact, action, text, None).await
    }

    /// Like [`Client::post_text`]; the message may be EXI by the schema of a service.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn post_text_by(
        &self,
        contact: &Contact,
        action: &str,
        text: String,
        schema: Option<&ServiceSchema>,
    ) -> Result<Answer, Error> {
        self.post(contact, content_type(action), text, schema).await
    }

    async fn post(
        &self,
        contact: &Contact,
        content_type: HeaderValue,
        text: String,
        schema: Option<&ServiceSchema>,
    ) -> Result<Answer, Error> {
        let text = Bytes::from(text);
        let peer = contact.address;
        if schema.is_some()
            && self.accepts_schemas(peer)
            && let Some(answer) = self.post_exi(contact, &text, schema).await?
        {
            return Ok(answer);
        }
        if self.accepts_exi(peer)
            && let Some(answer) = self.post_exi(contact, &text, None).await?
        {
            return Ok(answer);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type);
        self.request(contact, Method::POST, headers, text).await
    }

    /// Sends a message as EXI, by the schema of a service or `dev1`; `None` if it is to be sent otherwise: it does not
    /// fit the schema, or the peer did not understand this message. After another error without a SOAP message only
    /// the next one is text, since this one may have had its effect.
    async fn post_exi(
        &self,
        contact: &Contact,
        text: &Bytes,
        schema: Option<&ServiceSchema>,
    ) -> Result<Option<Answer>, Error> {
        let peer = contact.address;
        let is_costly = schema.is_some_and(ServiceSchema::is_costly);
        let encode = {
            let (text, schema) = (text.clone(), schema.cloned());
            move || exi::encode(&text, schema.as_ref())
        };
        let encoded = match is_costly {
            true => self.parsers().run(encode).await,
            false => self.parsers().run_if_large(text.len(), encode).await,
        };
        let Some(body) = encoded.unwrap_or_default() else {
            return Ok(None);
        };
        let mut headers = HeaderMap::new();
        exi::set_headers(&mut headers);
        let answer = self.request_by(contact, Method::POST, headers, body, schema);
        let answer = answer.await?;
        let status = answer.status;
        if schema.is_some() && status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            self.refuses_schema(peer);
            return Ok(None);
        }
        let is_refusal = status == StatusCode::UNSUPPORTED_MEDIA_TYPE
            || !status.is_success() && !is_soap(&answer.headers);
        if !is_refusal {
            return Ok(Some(answer));
        }
        // Another program may have taken the peer's address, one that does not know EXI.
        self.refuses_exi(peer);
        Ok((!is_not_understood(status)).then_some(answer))
    }
}

/// Whether a peer that answers without SOAP did not understand the body, so that nothing was done.
fn is_not_understood(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED
    )
}

fn is_soap(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.and_then(|kind| kind.get(..SOAP_MEDIA_TYPE.len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(SOAP_MEDIA_TYPE.as_bytes()))
}

/// The media type with the action, unless the action has characters that are invalid in a parameter.
fn content_type(action: &str) -> HeaderValue {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    let with_action = [SOAP_CONTENT_TYPE, "; action=\"", action, "\""].concat();
    match HeaderValue::from_str(&with_action) {
        Ok(value) if action.bytes().all(plain) => value,
        _ => HeaderValue::from_static(SOAP_CONTENT_TYPE),
    }
}

/// An envelope as it is received.
pub(super) trait Received: Send + Sized + 'static {
    fn parse(document: &Bytes, limits: Limits) -> Result<Self, chappe_soap::Error>;
    fn has_fault(&self) -> bool;
}

impl Received for Envelope {
    fn parse(document: &Bytes, limits: Limits) -> Result<Self, chappe_soap::Error> {
        Self::parse_within(document, limits)
    }

    fn has_fault(&self) -> bool {
        self.fault().is_some()
    }
}

impl Received for LazyEnvelope {
    fn parse(document: &Bytes, limits: Limits) -> Result<Self, chappe_soap::Error> {
        Self::parse_within(document.clone(), limits)
    }

    fn has_fault(&self) -> bool {
        self.fault().is_some()
    }
}

/// An answer as a message; `None` if the request was accepted without one.
pub(super) fn read_answer<T: Received>(
    peer: SocketAddr,
    answer: &Answer,
    bytes: usize,
) -> Result<Option<T>, Error> {
    let status = answer.status;
    if answer.body.is_empty() {
        return match status {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(None),
            status => Err(Error::Status { peer, status }),
        };
    }
    let limits = Limits {
        bytes,
        ..Limits::default()
    };
    match T::parse(&answer.body, limits) {
        Ok(envelope) if status.is_success() || envelope.has_fault() => Ok(Some(envelope)),
        Ok(_) => Err(Error::Status { peer, status }),
        // A server without SOAP answers errors with a page.
        Err(_) if !status.is_success() => Err(Error::Status { peer, status }),
        Err(source) => Err(Error::Soap { peer, source }),
    }
}
