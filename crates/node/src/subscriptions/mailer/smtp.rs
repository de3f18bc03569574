//! SMTP.

use std::time::Duration;

use lettre::message::{Mailbox, header::ContentType};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use super::NotSent;
use crate::config::{Mail, MailEncryption};

/// Time for each step of a delivery.
const DEADLINE: Duration = Duration::from_secs(30);

impl NotSent {
    fn settings(reason: impl std::fmt::Display) -> Self {
        // The operator may correct them.
        Self {
            reason: reason.to_string(),
            is_transient: true,
        }
    }
}

/// Whether this is the address of one mailbox.
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}

fn parameters(mail: &Mail) -> Result<TlsParameters, NotSent> {
    let path = &mail.authorities;
    let mut builder = TlsParameters::builder(mail.server.clone());
    if !path.as_os_str().is_empty() {
        let pem = std::fs::read(path);
        let pem = pem.map_err(|error| {
            NotSent::settings(format!("cannot read mail.authorities {path:?}: {error}"))
        })?;
        let authorities = Certificate::from_pem(&pem).map_err(|error| {
            NotSent::settings(format!(
                "mail.authorities {path:?} has no certificate: {error}"
            ))
        })?;
        builder = builder.certificate_store(CertificateStore::None);
        builder = builder.add_root_certificate(authorities);
    }
    builder.build().map_err(NotSent::settings)
}

fn transport(mail: &Mail) -> Result<AsyncSmtpTransport<Tokio1Executor>, NotSent> {
    let tls = match mail.encryption {
        MailEncryption::None => Tls::None,
        MailEncryption::Starttls => Tls::Required(parameters(mail)?),
        MailEncryption::Tls => Tls::Wrapper(parameters(mail)?),
    };
    let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&mail.server)
        .port(mail.port)
        .timeout(Some(DEADLINE))
        .tls(tls);
    if mail.user.is_empty() {
        return Ok(builder.build());
    }
    let path = &mail.password_file;
    let password = std::fs::read_to_string(path);
    let password = password.map_err(|error| {
        NotSent::settings(format!("cannot read mail.password_file {path:?}: {error}"))
    })?;
    let password = password.lines().next().unwrap_or_default().to_owned();
    let credentials = Credentials::new(mail.user.clone(), password);
    Ok(builder.credentials(credentials).build())
}

/// Sends a mail.
pub(super) async fn send(
    mail: &Mail,
    to: &str,
    subject: &str,
    text: String,
) -> Result<(), NotSent> {
    let mailbox = |text: &str| text.parse::<Mailbox>().map_err(NotSent::settings);
    let message = Message::builder()
        .from(mailbox(&mail.sender)?)
        .to(mailbox(to)?)
        .subject(subject)
        .header(ContentType::TEXT_PLAIN)
        .body(text)
        .map_err(NotSent::settings)?;
    let transport = transport(mail)?;
    let sent = transport.send(message).await;
    sent.map(|_| ()).map_err(|error| NotSent {
        is_transient: !error.is_permanent(),
        reason: error.to_string(),
    })
}
