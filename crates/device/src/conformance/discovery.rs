//! Discovery: by multicast, and Probes by HTTP.

use chappe_dpws::discovery::{Content, Message, Probe, Target};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Limits, Name, Str};

use super::clause::{
    ALL_TYPES, APP_SEQUENCE, Clause, DATAGRAM_SIZE, DEVICE_TYPE, HTTP_MATCH, HTTP_NO_MATCH,
    HTTP_PROBE, INSTANCE, MATCH_MESSAGE, MATCH_RELATES, MATCHES, MESSAGE_NUMBER, METADATA_VERSION,
    OTHER_RULE, OTHER_SCOPE, OTHER_TYPE, OWN_SCOPE, RESOLVE_ADDRESS, RESOLVE_OTHER,
    RESOLVE_RELATES, RESOLVES, SAME_ENDPOINT, UDP_COPIES, UDP_ONCE,
};
use super::wire::Wire;
use super::{Check, Exchange, so};

/// Bytes of a datagram that fits into an MTU of 1,500 bytes, below the headers of IPv6 and UDP.
const DATAGRAM_BYTES: usize = 1_452;
/// A scope, type and endpoint that no device has.
const NOWHERE: &str = "urn:chappe:conformance/nowhere";
const NOBODY: &str = "urn:uuid:6c0f6ec4-9d6c-4f0b-8b43-000000000000";

/// A question to the multicast group, with the device's answers.
struct Asked {
    id: String,
    question: String,
    answers: Vec<String>,
}

impl<W: Wire> Check<'_, W> {
    fn probe(&mut self, types: Vec<Name>, scopes: Vec<Str>, rule: Option<&'static str>) -> Message {
        self.question(Content::Probe(Probe {
            types,
            scopes,
            match_by: rule.map(Str::Borrowed),
        }))
    }

    fn question(&mut self, content: Content) -> Message {
        let dialect = self.dialect;
        Message {
            dialect,
            message_id: self.id().into(),
            relates_to: None,
            to: Some(dialect.multicast_to().into()),
            // WS-Addressing 2004/08 requires it in requests.
            reply_to: Some(dialect.addressing().anonymous().into()),
            sequence: None,
            content,
        }
    }

    /// Probes by HTTP, at the device.
    pub(super) async fn probe_by_http(&mut self) {
        let url = self.url.clone();
        let device = self.dialect.device_type();
        let probe = self.probe(vec![device], Vec::new(), None);
        let seen = self
            .ask("a Probe by HTTP", &url, &probe.to_envelope(&[]))
            .await;
        let matches = matches_of(seen.envelope.as_ref());
        let problem = matches.as_ref().err().cloned();
        self.judge(&HTTP_PROBE, &seen, problem.map_or(Ok(()), Err));
        let Ok(targets) = matches else { return };
        let own = self.device().address;
        let contains = targets.iter().any(|one| one.endpoint.address == own);
        let problem = || format!("the answer does not contain {own}");
        self.judge(&HTTP_MATCH, &seen, so(contains, problem));

        let probe = self.probe(vec![Name::new(NOWHERE, "Nothing")], Vec::new(), None);
        let sent = "a Probe for another type by HTTP";
        let seen = self.ask(sent, &url, &probe.to_envelope(&[])).await;
        let is_empty = matches_of(seen.envelope.as_ref()).is_ok_and(|all| all.is_empty());
        let problem = || "the answer is not an empty ProbeMatches".to_owned();
        self.judge(&HTTP_NO_MATCH, &seen, so(is_empty, problem));
    }

    /// Questions to the multicast group.
    pub(super) async fn discovery(&mut self) {
        let device = self.dialect.device_type();
        let probe = self.probe(vec![device.clone()], Vec::new(), None);
        let own = self.device();
        let resolve = self.question(Content::Resolve(own));
        let asked = self.multicast(vec![probe, resolve]).await;
        let [probed, resolved] = asked.as_slice() else {
            return;
        };
        let is_heard = asked.iter().any(|one| !one.answers.is_empty());
        if !is_heard && !self.wire.on_link() {
            self.note("multicast does not reach the device: discovery is not checked");
            return;
        }
        let target = self.judge_probed(probed);
        self.judge_resolved(resolved);
        asked.iter().for_each(|one| self.judge_datagrams(one));
        self.silences(target.as_ref(), device).await;
        self.judge_sequences();
    }

    /// The match of the first Probe.
    fn judge_probed(&mut self, asked: &Asked) -> Option<Target> {
        let sent = "a Probe for devices, by multicast";
        let seen = asked.exchange(sent, asked.answers.first());
        let there = !asked.answers.is_empty();
        self.judge(&MATCHES, &seen, so(there, || "no answer came".to_owned()));
        if !there {
            return None;
        }
        let has_version = seen.response.contains("MetadataVersion>");
        let problem = || "it has none".to_owned();
        self.judge(&METADATA_VERSION, &seen, so(has_version, problem));
        let matches = matches_of(seen.envelope.as_ref());
        let problem = matches.as_ref().err().cloned();
        self.judge(&MATCH_MESSAGE, &seen, problem.map_or(Ok(()), Err));
        self.judge_relation(&MATCH_RELATES, &seen, asked);
        self.judge_sequence(&seen);
        let own = self.device().address;
        let targets = matches.ok()?;
        let target = targets.iter().find(|one| one.endpoint.address == own);
        let target = target.or(targets.first())?.clone();
        let named = &target.endpoint.address;
        let problem = || format!("the match names {named}, the metadata {own}");
        self.judge(&SAME_ENDPOINT, &seen, so(*named == own, problem));
        let device = self.dialect.device_type();
        let kept = target.types.is_empty() || target.types.contains(&device);
        let problem = || "they do not".to_owned();
        self.judge(&DEVICE_TYPE, &seen, so(kept, problem));
        Some(target)
    }

    fn judge_resolved(&mut self, asked: &Asked) {
        let seen = asked.exchange("a Resolve of the device", asked.answers.first());
        let read = message_of(seen.envelope.as_ref());
        let target = match read.map(|message| message.content) {
            Ok(Content::ResolveMatches(Some(target))) => Ok(target),
            Ok(_) => Err("it is not a ResolveMatches with a match".to_owned()),
            Err(problem) => Err(problem),
        };
        let own = self.device().address;
        let verdict = match &target {
            Ok(target) if target.endpoint.address == own => Ok(()),
            Ok(target) => Err(format!("it names {}", target.endpoint.address)),
            Err(problem) => Err(problem.clone()),
        };
        self.judge(&RESOLVES, &seen, verdict);
        if asked.answers.is_empty() {
            return;
        }
        self.judge_relation(&RESOLVE_RELATES, &seen, asked);
        self.judge_sequence(&seen);
        if let Ok(target) = target {
            let problem = || "it has none".to_owned();
            let verdict = so(!target.xaddrs.is_empty(), problem);
            self.judge(&RESOLVE_ADDRESS, &seen, verdict);
        }
    }

    /// Questions that the device must not answer, and one for its own scope.
    async fn silences(&mut self, target: Option<&Target>, device: Name) {
        let other = Name::new(NOWHERE, "Nothing");
        let nowhere = || vec![Str::Borrowed(NOWHERE)];
        let scopes = target
            .map(|target| target.scopes.clone())
            .unwrap_or_default();
        let silent: [(&'static Clause, &str, Message); 5] = [
            (
                &OTHER_TYPE,
                "a Probe for another type",
                self.probe(vec![other.clone()], Vec::new(), None),
            ),
            (
                &ALL_TYPES,
                "a Probe for a device that also has another type",
                self.probe(vec![device.clone(), other], Vec::new(), None),
            ),
            (
                &OTHER_SCOPE,
                "a Probe for another scope",
                self.probe(vec![device.clone()], nowhere(), None),
            ),
            (
                &OTHER_RULE,
                "a Probe by an unknown rule",
                self.probe(
                    vec![device.clone()],
                    scopes
                        .iter()
                        .take(1)
                        .cloned()
                        .chain(nowhere())
                        .take(1)
                        .collect(),
                    Some("urn:chappe:conformance/rule"),
                ),
            ),
            (
                &RESOLVE_OTHER,
                "a Resolve of another endpoint",
                self.question(Content::Resolve(EndpointReference::new(NOBODY))),
            ),
        ];
        let (clauses, mut questions): (Vec<_>, Vec<_>) = silent
            .into_iter()
            .map(|(clause, sent, message)| ((clause, sent), message))
            .unzip();
        let own_scope = scopes.into_iter().next();
        if let Some(scope) = own_scope {
            questions.push(self.probe(vec![device], vec![scope], None));
        }
        let asked = self.multicast(questions).await;
        for ((clause, sent), asked) in clauses.iter().zip(&asked) {
            let seen = asked.exchange(sent, asked.answers.first());
            let problem = || "an answer came".to_owned();
            self.judge(clause, &seen, so(asked.answers.is_empty(), problem));
        }
        if let Some(asked) = asked.get(clauses.len()) {
            let seen = asked.exchange("a Probe for the device's scope", asked.answers.first());
            let found = matches_of(seen.envelope.as_ref()).is_ok_and(|all| !all.is_empty());
            let problem = || "no match came".to_owned();
            self.judge(&OWN_SCOPE, &seen, so(found, problem));
            self.judge_datagrams(asked);
        }
    }

    /// Sends questions, and takes the answers that are this device's.
    async fn multicast(&mut self, questions: Vec<Message>) -> Vec<Asked> {
        let texts: Vec<_> = questions
            .iter()
            .map(|message| message.to_envelope(&[]).to_text())
            .collect();
        self.report.questions += u32::try_from(texts.len()).unwrap_or(u32::MAX);
        let mut answers = self.wire.multicast(&texts, self.options.answers).await;
        answers.resize(texts.len(), Vec::new());
        let device = self.device().address;
        let authority = self.options.device.address.to_string();
        let own = [&*device, &authority];
        let mut asked = Vec::new();
        for ((message, question), mut answers) in questions.into_iter().zip(texts).zip(answers) {
            answers.retain(|answer| !is_of_another(answer, &own));
            let id = message.message_id.to_string();
            asked.push(Asked {
                id,
                question,
                answers,
            });
        }
        asked
    }

    fn judge_relation(&mut self, clause: &'static Clause, seen: &Exchange, asked: &Asked) {
        let envelope = seen.envelope.as_ref();
        let relates_to = envelope.and_then(|one| one.addressing.relates_to.as_deref());
        let problem = || {
            format!(
                "RelatesTo is {relates_to:?}, the MessageID was {:?}",
                asked.id
            )
        };
        self.judge(clause, seen, so(relates_to == Some(&asked.id), problem));
    }

    fn judge_sequence(&mut self, seen: &Exchange) {
        let sequence = message_of(seen.envelope.as_ref()).ok();
        let sequence = sequence.and_then(|message| message.sequence);
        let problem = || "it has none".to_owned();
        self.judge(&APP_SEQUENCE, seen, so(sequence.is_some(), problem));
    }

    /// What holds for every datagram: copies are equal, a question is answered once.
    fn judge_datagrams(&mut self, asked: &Asked) {
        let mut by_id: Vec<(String, &String)> = Vec::new();
        for answer in &asked.answers {
            let seen = asked.exchange("a question by multicast", Some(answer));
            let bytes = answer.len();
            let problem = || format!("it has {bytes} bytes");
            self.judge(&DATAGRAM_SIZE, &seen, so(bytes <= DATAGRAM_BYTES, problem));
            let Ok(message) = message_of(seen.envelope.as_ref()) else {
                continue;
            };
            let id = message.message_id.to_string();
            if let Some((_, first)) = by_id.iter().find(|(other, _)| *other == id) {
                let problem = || "two messages with one MessageID differ".to_owned();
                self.judge(&UDP_COPIES, &seen, so(*first == answer, problem));
                continue;
            }
            if let Some(sequence) = message.sequence {
                self.sequences.push((id.clone(), sequence));
            }
            by_id.push((id, answer));
        }
        if !by_id.is_empty() {
            let seen = asked.exchange("a question by multicast, twice", asked.answers.last());
            let count = by_id.len();
            let problem = || format!("{count} different answers came");
            self.judge(&UDP_ONCE, &seen, so(count == 1, problem));
        }
    }

    /// What holds for all answers together.
    fn judge_sequences(&mut self) {
        let sequences = std::mem::take(&mut self.sequences);
        let Some((_, first)) = sequences.first() else {
            return;
        };
        let seen = Exchange::of("all questions by multicast", String::new(), None);
        let numbers: Vec<_> = sequences
            .iter()
            .map(|(_, one)| (&one.sequence_id, one.message_number))
            .collect();
        let mut repeated = numbers
            .iter()
            .enumerate()
            .filter(|(index, number)| numbers[..*index].contains(number));
        let problem = repeated
            .next()
            .map(|(_, (_, number))| format!("{number} comes twice"));
        self.judge(&MESSAGE_NUMBER, &seen, problem.map_or(Ok(()), Err));
        let other = sequences
            .iter()
            .find(|(_, one)| one.instance_id != first.instance_id);
        let problem =
            other.map(|(_, one)| format!("it is {}, then {}", first.instance_id, one.instance_id));
        self.judge(&INSTANCE, &seen, problem.map_or(Ok(()), Err));
    }
}

impl Asked {
    fn exchange(&self, sent: &str, answer: Option<&String>) -> Exchange {
        Exchange::of(sent, self.question.clone(), answer.cloned())
    }
}

impl Exchange {
    /// A question by datagram.
    fn of(sent: &str, request: String, response: Option<String>) -> Self {
        let response = response.unwrap_or_default();
        let read = Envelope::parse_within(response.as_bytes(), Limits::datagram()).ok();
        let came = match &read {
            Some(envelope) => envelope.addressing.action.to_string(),
            None if response.is_empty() => "silence".to_owned(),
            None => format!("{} bytes that are not a message", response.len()),
        };
        Self {
            sent: sent.to_owned(),
            request,
            came,
            response,
            status: 0,
            media_type: String::new(),
            fault: read.as_ref().and_then(Envelope::fault),
            envelope: read,
        }
    }
}

fn message_of(envelope: Option<&Envelope>) -> Result<Message, String> {
    let envelope = envelope.ok_or("it is not a message")?;
    Message::from_envelope(envelope).map_err(|error| error.to_string())
}

/// The matches in an answer to a Probe.
fn matches_of(envelope: Option<&Envelope>) -> Result<Vec<Target>, String> {
    match message_of(envelope)?.content {
        Content::ProbeMatches(targets) => Ok(targets),
        other => Err(format!("it is {}", other.action())),
    }
}

/// Whether an answer names neither the device's endpoint nor its transport address, as those of other devices at
/// the same address do.
fn is_of_another(answer: &str, own: &[&str]) -> bool {
    answer.contains("EndpointReference") && !own.iter().any(|own| answer.contains(own))
}
