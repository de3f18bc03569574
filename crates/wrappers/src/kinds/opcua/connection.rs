//! A connection: the secure channel, the session on it, and requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_stream::Timestamp;
use opcua_client::services::{ActivateSession, CreateSession};
use opcua_client::transport::{SecureChannelState, TransportConfiguration, TransportPollResult};
use opcua_client::{AsyncSecureChannel, IdentityToken, SessionRetryPolicy, UARequest as _};
use opcua_core::sync::RwLock;
use opcua_core::{RequestMessage, ResponseMessage};
use opcua_types::{
    ApplicationDescription, ApplicationType, AttributeId, BrowsePath, BrowsePathResult, ByteString,
    CloseSessionRequest, ContextOwned, DataValue, DateTime, DecodingOptions, EndpointDescription,
    GetEndpointsRequest, HistoryReadRequest, HistoryReadResult, HistoryReadValueId,
    MessageSecurityMode, NamespaceMap, NodeId, ReadRawModifiedDetails, ReadRequest, ReadValueId,
    RequestHeader, ResponseHeader, StatusCode, TimestampsToReturn,
    TranslateBrowsePathsToNodeIdsRequest,
};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;

use super::frames::{Connect, FRAME_BYTES_MAX};
use super::security::Security;
use super::settings::Target;
use super::value::date_time;
use crate::WrapperError;
use crate::clock::now;

/// Most frames of one message.
const FRAMES_MAX: usize = 64;
/// Largest message: 4 MiB, four times what a batch may have.
const MESSAGE_BYTES_MAX: usize = FRAMES_MAX * FRAME_BYTES_MAX;
/// Most items of one array: as many doubles as a message has.
const ARRAY_ITEMS_MAX: usize = MESSAGE_BYTES_MAX / 8;
/// Longest time to connect, and to answer one request; reason: a server that is slower is gone.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(15);
/// Time for which keys of a secure channel are asked for; the library renews them after three quarters.
const CHANNEL_TIME_MS: u32 = 600_000;
/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;
/// Nodes of one request; reason: small servers allow no more.
pub(super) const REQUEST_NODES: usize = 50;

/// Why a request failed.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    text: String,
}

impl Fault {
    /// A failure with this status.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    /// A silent server.
    pub(super) fn silence(time: Duration) -> Self {
        Self::new(StatusCode::BadTimeout, format!("no answer within {time:?}"))
    }

    /// Whether the connection or the session is gone, rather than one request refused.
    pub(super) fn is_disconnect(&self) -> bool {
        self.is_unreadable()
            || matches!(
                self.status,
                StatusCode::BadCommunicationError
                    | StatusCode::BadConnectionClosed
                    | StatusCode::BadNotConnected
                    | StatusCode::BadSecureChannelClosed
                    | StatusCode::BadSecureChannelIdInvalid
                    | StatusCode::BadSecurityChecksFailed
                    | StatusCode::BadSessionClosed
                    | StatusCode::BadSessionIdInvalid
                    | StatusCode::BadSessionNotActivated
                    | StatusCode::BadTcpInternalError
                    | StatusCode::BadTimeout
                    | StatusCode::BadUnknownResponse
            )
    }

    /// Whether a message was too large for this client, or could not be read: the same one would end the next connection.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(
            self.status,
            StatusCode::BadDecodingError
                | StatusCode::BadEncodingLimitsExceeded
                | StatusCode::BadTcpMessageTooLarge
        )
    }

    /// The server has ended the subscription.
    pub(super) fn ended(status: StatusCode) -> Self {
        Self::new(status, "the server has ended the subscription")
    }

    /// The error for the operator.
    pub(super) fn error(&self, url: &str) -> WrapperError {
        let status = self.status.to_string();
        let error = WrapperError::peer(match self.text.contains(&status) {
            true => format!("{url}: {}", self.text),
            false => format!("{url}: {} ({status})", self.text),
        });
        match hint(self.status) {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<opcua_types::Error> for Fault {
    fn from(error: opcua_types::Error) -> Self {
        Self::new(error.status(), error.to_string())
    }
}

fn hint(status: StatusCode) -> Option<&'static str> {
    Some(match status {
        StatusCode::BadSecurityChecksFailed
        | StatusCode::BadCertificateUntrusted
        | StatusCode::BadCertificateInvalid
        | StatusCode::BadCertificateUriInvalid => {
            "let the server trust the certificate of this client: opcua/NAME/own/cert.der next to the wrapper's \
                file, unless `certificate` names another"
        }
        StatusCode::BadCertificateTimeInvalid => {
            "renew the certificate, and check the clocks of both"
        }
        StatusCode::BadIdentityTokenRejected
        | StatusCode::BadIdentityTokenInvalid
        | StatusCode::BadUserAccessDenied => {
            "check user and password_file, or the user's certificate"
        }
        StatusCode::BadTooManySessions => {
            "the server has too many sessions; a killed node leaves one until session_timeout_s"
        }
        StatusCode::BadDecodingError
        | StatusCode::BadEncodingLimitsExceeded
        | StatusCode::BadTcpMessageTooLarge
        | StatusCode::BadResponseTooLarge => {
            "a value may be larger than 4 MiB, or of a form that no client reads: leave its node out"
        }
        _ => return None,
    })
}

/// A session at a server, which outlives a connection.
#[derive(Debug, Clone)]
pub(super) struct Session {
    token: NodeId,
    /// What the server wants to see signed when the session moves to another channel.
    nonce: ByteString,
}

/// An open secure channel with an active session.
pub(super) struct Connection {
    channel: AsyncSecureChannel,
    token: NodeId,
    pump: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

fn options() -> DecodingOptions {
    DecodingOptions {
        max_message_size: MESSAGE_BYTES_MAX,
        max_chunk_count: FRAMES_MAX,
        max_string_length: MESSAGE_BYTES_MAX,
        max_byte_string_length: MESSAGE_BYTES_MAX,
        max_array_length: ARRAY_ITEMS_MAX,
        ..Default::default()
    }
}

/// Opens a channel to an endpoint.
async fn open(
    place: &str,
    endpoint: EndpointDescription,
    security: &Security,
) -> Result<(Connection, Option<Arc<SecureChannelState>>), Fault> {
    let connect = Connect {
        url: endpoint.endpoint_url.as_ref().to_owned(),
        place: place.to_owned(),
        state: Mutex::default(),
    };
    let channel = AsyncSecureChannel::new(
        security.store.clone(),
        (endpoint, IdentityToken::Anonymous).into(),
        SessionRetryPolicy::never(),
        false,
        Arc::default(),
        TransportConfiguration {
            send_buffer_size: FRAME_BYTES_MAX,
            recv_buffer_size: FRAME_BYTES_MAX,
            max_message_size: MESSAGE_BYTES_MAX,
            max_chunk_count: FRAMES_MAX,
        },
        CHANNEL_TIME_MS,
        Arc::new(RwLock::new(ContextOwned::new_default(
            NamespaceMap::new(),
            options(),
        ))),
    );
    let mut events = channel.connect_no_retry(&connect).await?;
    // A task of its own: if a hostile frame lets the library panic, the task ends, and with it all requests.
    let pump =
        async move { while !matches!(events.poll().await, TransportPollResult::Closed(_)) {} };
    let pump = tokio::spawn(pump.with_subscriber(Dispatch::none()));
    let state = connect
        .state
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let connection = Connection {
        channel,
        token: NodeId::null(),
        pump: pump.abort_handle(),
    };
    Ok((connection, state))
}

/// The endpoints of a server, asked for without security.
pub(super) async fn endpoints(
    url: &str,
    place: &str,
    security: &Security,
) -> Result<Vec<EndpointDescription>, Fault> {
    let asked = async {
        let (connection, _) = open(place, EndpointDescription::from(url), security).await?;
        let request = GetEndpointsRequest {
            request_header: connection.header(ANSWER_TIME),
            endpoint_url: url.into(),
            locale_ids: None,
            profile_uris: None,
        };
        match connection.ask(request, ANSWER_TIME).await? {
            ResponseMessage::GetEndpoints(answer) => {
                good(&answer.response_header)?;
                Ok(answer.endpoints.unwrap_or_default())
            }
            other => Err(unexpected(&other)),
        }
    };
    let late = |_| Fault::silence(ANSWER_TIME);
    timeout(ANSWER_TIME, asked).await.map_err(late)?
}

/// An endpoint for people.
pub(super) fn endpoint_name(endpoint: &EndpointDescription) -> String {
    let policy = endpoint.security_policy_uri.as_ref();
    let policy = policy.rsplit('#').next().unwrap_or_default();
    let mode = match endpoint.security_mode {
        MessageSecurityMode::None => "None",
        MessageSecurityMode::Sign => "Sign",
        MessageSecurityMode::SignAndEncrypt => "SignAndEncrypt",
        MessageSecurityMode::Invalid => "invalid",
    };
    format!("{policy} {mode}")
}

fn good(header: &ResponseHeader) -> Result<(), Fault> {
    match header.service_result.is_bad() {
        true => Err(Fault::new(
            header.service_result,
            "the server refused a request",
        )),
        false => Ok(()),
    }
}

fn unexpected(message: &ResponseMessage) -> Fault {
    match message {
        ResponseMessage::ServiceFault(fault) => Fault::new(
            fault.response_header.service_result,
            "the server refused a request",
        ),
        _ => Fault::new(
            StatusCode::BadUnknownResponse,
            "the server answered another request",
        ),
    }
}

impl Connection {
    /// Connects to a target, and activates a session: this one if it lives still, else a new one.
    ///
    /// # Errors
    /// The server cannot be reached, is another one, or refuses.
    pub(super) async fn open(
        target: &Target,
        session: Option<Session>,
    ) -> Result<(Self, Session, bool), WrapperError> {
        let security = Security::of(target)?;
        let found = endpoints(&target.url, &target.place, &security).await;
        let found = found.map_err(|fault| fault.error(&target.url))?;
        let mut matching = found.iter().filter(|endpoint| {
            endpoint.security_policy_uri.as_ref() == target.policy.to_uri()
                && endpoint.security_mode == target.mode
        });
        let Some(endpoint) = matching.next() else {
            let names: Vec<String> = found.iter().take(16).map(endpoint_name).collect();
            let text = format!(
                "{} has no endpoint with {} {:?}; it has: {}",
                target.url,
                target.policy,
                target.mode,
                names.join(", ")
            );
            let hint = "set security_policy and security_mode to one of them";
            return Err(WrapperError::peer(text).with_hint(hint));
        };
        let endpoint = EndpointDescription {
            endpoint_url: target.url.as_str().into(),
            ..endpoint.clone()
        };
        security.check_server(target, &endpoint.server_certificate)?;
        let activated = timeout(
            2 * ANSWER_TIME,
            activate(target, &endpoint, &security, session),
        )
        .await;
        let activated = activated.unwrap_or_else(|_| Err(Fault::silence(2 * ANSWER_TIME)));
        activated.map_err(|fault| fault.error(&target.url))
    }

    fn header(&self, time: Duration) -> RequestHeader {
        RequestHeader {
            authentication_token: self.token.clone(),
            timestamp: DateTime::now(),
            request_handle: self.channel.request_handle(),
            timeout_hint: u32::try_from(time.as_millis()).unwrap_or(u32::MAX),
            ..Default::default()
        }
    }

    async fn ask(
        &self,
        request: impl Into<RequestMessage>,
        time: Duration,
    ) -> Result<ResponseMessage, Fault> {
        Ok(self.channel.send(request, time).await?)
    }

    /// Sends a request that `build` gives its header to, and takes the answer apart.
    pub(super) async fn request<Q: Into<RequestMessage>, A>(
        &self,
        time: Duration,
        build: impl FnOnce(RequestHeader) -> Q,
        read: impl FnOnce(ResponseMessage) -> Result<(ResponseHeader, A), ResponseMessage>,
    ) -> Result<A, Fault> {
        let answer = self.ask(build(self.header(time)), time).await?;
        let (header, answer) = read(answer).map_err(|other| unexpected(&other))?;
        good(&header)?;
        Ok(answer)
    }

    /// Reads attributes; as many values as attributes.
    pub(super) async fn read(&self, nodes: Vec<ReadValueId>) -> Result<Vec<DataValue>, Fault> {
        let count = nodes.len();
        let build = |request_header| ReadRequest {
            request_header,
            max_age: 0.0,
            timestamps_to_return: TimestampsToReturn::Both,
            nodes_to_read: Some(nodes),
        };
        let values = self.request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::Read(it) => Ok((it.response_header, it.results)),
            other => Err(other),
        });
        counted(values.await?, count)
    }

    /// The nodes of browse paths; as many results as paths.
    pub(super) async fn translate(
        &self,
        paths: Vec<BrowsePath>,
    ) -> Result<Vec<BrowsePathResult>, Fault> {
        let count = paths.len();
        let build = |request_header| TranslateBrowsePathsToNodeIdsRequest {
            request_header,
            browse_paths: Some(paths),
        };
        let results = self.request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::TranslateBrowsePathsToNodeIds(it) => {
                Ok((it.response_header, it.results))
            }
            other => Err(other),
        });
        counted(results.await?, count)
    }

    /// A page of the history of a node, from a time on.
    pub(super) async fn history(
        &self,
        node: &NodeId,
        (from, count): (Timestamp, u32),
        point: ByteString,
    ) -> Result<HistoryReadResult, Fault> {
        // A day after now: the server's clock may be ahead.
        let end = Timestamp(now().0.saturating_add(DAY_NS));
        let details = ReadRawModifiedDetails {
            is_read_modified: false,
            start_time: date_time(from),
            end_time: date_time(end),
            num_values_per_node: count,
            return_bounds: false,
        };
        let build = |request_header| HistoryReadRequest {
            request_header,
            history_read_details: opcua_types::ExtensionObject::from_message(details),
            timestamps_to_return: TimestampsToReturn::Both,
            release_continuation_points: false,
            nodes_to_read: Some(vec![HistoryReadValueId {
                node_id: node.clone(),
                continuation_point: point,
                ..Default::default()
            }]),
        };
        let results = self.request(ANSWER_TIME, build, |answer| match answer {
            ResponseMessage::HistoryRead(it) => Ok((it.response_header, it.results)),
            other => Err(other),
        });
        let mut results = counted(results.await?, 1)?;
        results
            .pop()
            .ok_or_else(|| Fault::new(StatusCode::BadUnknownResponse, "no result"))
    }

    /// Ends the session, so that the server need not wait for it.
    pub(super) async fn close(&self) {
        let time = Duration::from_secs(1);
        let build = |request_header| CloseSessionRequest {
            request_header,
            delete_subscriptions: true,
        };
        let closed = self.request(time, build, |answer| match answer {
            ResponseMessage::CloseSession(it) => Ok((it.response_header, ())),
            other => Err(other),
        });
        // A server that does not answer ends it after its time.
        drop(timeout(time, closed).await);
    }
}

/// Results of which there are as many as asked for.
pub(super) fn counted<T>(results: Option<Vec<T>>, count: usize) -> Result<Vec<T>, Fault> {
    let results = results.unwrap_or_default();
    match results.len() == count {
        true => Ok(results),
        false => {
            let text = format!("{} results for {count} items", results.len());
            Err(Fault::new(StatusCode::BadUnknownResponse, text))
        }
    }
}

/// The value of a node, to be read.
pub(super) fn value_of(node: &NodeId) -> ReadValueId {
    ReadValueId {
        node_id: node.clone(),
        attribute_id: AttributeId::Value as u32,
        ..Default::default()
    }
}

async fn activate(
    target: &Target,
    endpoint: &EndpointDescription,
    security: &Security,
    session: Option<Session>,
) -> Result<(Connection, Session, bool), Fault> {
    let (mut connection, state) = open(&target.place, endpoint.clone(), security).await?;
    if let (Some(session), Some(state)) = (session, state) {
        {
            let mut channel = state.secure_channel().write();
            channel.set_remote_nonce_from_byte_string(&session.nonce)?;
        }
        connection.token = session.token.clone();
        connection.channel.set_auth_token(session.token.clone());
        if let Ok(nonce) = connection.activate(endpoint, security).await {
            return Ok((connection, Session { nonce, ..session }, true));
        }
        // The server has forgotten the session, or does not let it move. It may have closed the channel.
        (connection, _) = open(&target.place, endpoint.clone(), security).await?;
    }
    let (certificate, _) = security.own.clone().unzip();
    let mut create = CreateSession::new_manual(
        &security.store,
        endpoint,
        0,
        ANSWER_TIME,
        NodeId::null(),
        connection.channel.request_handle(),
    )
    .client_description(ApplicationDescription {
        application_uri: security.application_uri.as_str().into(),
        product_uri: "urn:chappe".into(),
        application_name: "Chappe".into(),
        application_type: ApplicationType::Client,
        ..Default::default()
    })
    .endpoint_url(endpoint.endpoint_url.clone())
    .session_name(format!("chappe-{}", target.name))
    .session_timeout(target.session_timeout.as_secs_f64() * 1_000.0)
    .max_response_message_size(u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX));
    if let Some(certificate) = certificate {
        create = create.client_certificate(certificate);
    }
    let created = create.send(&connection.channel).await?;
    connection.token = created.authentication_token;
    let nonce = connection.activate(endpoint, security).await?;
    let session = Session {
        token: connection.token.clone(),
        nonce,
    };
    Ok((connection, session, false))
}

impl Connection {
    async fn activate(
        &self,
        endpoint: &EndpointDescription,
        security: &Security,
    ) -> Result<ByteString, Fault> {
        let mut activate = ActivateSession::new_manual(
            endpoint.clone(),
            0,
            ANSWER_TIME,
            self.token.clone(),
            self.channel.request_handle(),
        )
        .identity_token(security.identity.clone());
        if let Some((_, key)) = &security.own {
            activate = activate.private_key(key.clone());
        }
        let activated = activate.send(&self.channel).await?;
        Ok(activated.server_nonce)
    }
}
