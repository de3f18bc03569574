//! Sends mail by SMTP, in a build with the feature `mail`.

#[cfg(feature = "mail")]
mod smtp;

use crate::config::Mail;

/// Whether this build can send mail.
pub(crate) const IS_BUILT: bool = cfg!(feature = "mail");

/// Why a mail was not sent.
#[derive(Debug)]
pub(crate) struct NotSent {
    pub(crate) reason: String,
    /// Whether the same mail may be sent later.
    pub(crate) is_transient: bool,
}

/// Whether this is the address of one mailbox.
pub(crate) fn is_address(text: &str) -> bool {
    #[cfg(feature = "mail")]
    return smtp::is_address(text);
    #[cfg(not(feature = "mail"))]
    text.contains('@')
}

/// Sends a mail.
pub(crate) async fn send(
    mail: &Mail,
    to: &str,
    subject: &str,
    text: String,
) -> Result<(), NotSent> {
    #[cfg(feature = "mail")]
    return smtp::send(mail, to, subject, text).await;
    #[cfg(not(feature = "mail"))]
    {
        let _ = (mail, to, subject, text);
        Err(NotSent {
            reason: "this program is built without mail".to_owned(),
            is_transient: true,
        })
    }
}
