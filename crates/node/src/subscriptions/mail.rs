//! Subscriptions by e-mail: stored, leased, and sent as one mail for the changes within a minute.
//!
//! Each subscription is a task. It waits for a change, gathers those that follow, and sends them as one
//! mail. Only then is the position stored up to which they were sent, so that a crash repeats a mail and
//! loses none. A mail that cannot be sent is tried again with growing pauses; after [`ATTEMPTS_MAX`] the
//! subscription ends, as it does when its lease is over or its account ends.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_registry::{Mark, Principal, WatchEvent, WatchItem, WatchStart};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

pub(crate) use super::stored::{About, Stored};
use super::stored::{Kept, MailSubscriptions};
use super::{Follow, FollowEnd, described, mailer};
use crate::accounts::Caller;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::shutdown;

/// Subscriptions of the node.
const SUBSCRIPTIONS_MAX: usize = 256;
/// Subscriptions of one account.
const OF_ACCOUNT_MAX: usize = 16;
/// Changes that one mail lists; the rest is counted.
const LISTED_MAX: usize = 200;
/// Attempts to send one mail.
const ATTEMPTS_MAX: u32 = 8;
/// Pause after the first failure; it doubles, so that the last attempt comes after about an hour.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Time between two records of how much of a lease is left.
const LEASE_STEP: Duration = Duration::from_secs(60);
/// The lease without a given one, and the longest: a week, and a year.
pub(crate) const LEASE_DEFAULT_S: u64 = 7 * 86_400;
pub(crate) const LEASE_MAX_S: u64 = 366 * 86_400;

/// Why a subscription is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MailError {
    #[error("the node sends no mail")]
    Off,
    #[error("{0:?} is not the address of a mailbox")]
    Address(String),
    #[error("{0} may not get mail of this node")]
    Recipient(String),
    #[error("{account} has {OF_ACCOUNT_MAX} subscriptions by e-mail already")]
    OfAccount { account: String },
    #[error("the node has {SUBSCRIPTIONS_MAX} subscriptions by e-mail already")]
    Full,
    #[error("the subscription cannot be stored: {0}")]
    Store(#[from] std::io::Error),
}

/// Adds a subscription.
pub(crate) fn add(
    app: &App,
    caller: &Caller,
    about: About,
    mail: String,
    lease_s: u64,
) -> Result<Stored, MailError> {
    if app.config.mail.server.is_empty() || !mailer::IS_BUILT {
        return Err(MailError::Off);
    }
    if !mailer::is_address(&mail) {
        return Err(MailError::Address(mail.chars().take(80).collect()));
    }
    if !app.config.mail.admits(&mail) {
        return Err(MailError::Recipient(mail));
    }
    let account = caller.name().to_owned();
    let number = chappe_transport::seed_number()?;
    let stored = Stored {
        id: format!("{number:016x}"),
        session: caller.session(),
        account: account.clone(),
        about,
        mail,
        left_s: lease_s,
        mark: Some(Mark::at(app.registry.revision()).to_string()),
    };
    let mut kept = app.mail.lock();
    let of_account = kept.values().filter(|one| one.stored.account == account);
    if of_account.count() >= OF_ACCOUNT_MAX {
        return Err(MailError::OfAccount { account });
    }
    if kept.len() >= SUBSCRIPTIONS_MAX {
        return Err(MailError::Full);
    }
    keep(app, &mut kept, stored.clone());
    if let Err(error) = app.mail.write(&kept) {
        if let Some(refused) = kept.remove(&stored.id) {
            refused.stop.send_replace(true);
        }
        return Err(error.into());
    }
    Ok(stored)
}

fn keep(app: &App, kept: &mut BTreeMap<String, Kept>, stored: Stored) {
    let (stop, stopped) = watch::channel(false);
    let since = Instant::now();
    tokio::spawn(run(app.clone(), stored.clone(), stopped));
    let id = stored.id.clone();
    kept.insert(
        id,
        Kept {
            stored,
            stop,
            since,
        },
    );
}

/// Starts the stored subscriptions, and counts their leases down until the node shuts down.
pub(crate) async fn watch_all(app: App) {
    let stored = app.mail.read();
    match stored {
        Ok(stored) => {
            let mut kept = app.mail.lock();
            for one in stored.into_iter().take(SUBSCRIPTIONS_MAX) {
                keep(&app, &mut kept, one);
            }
        }
        Err(error) => {
            let text = format!("no mail is sent to its subscribers: {error}");
            app.observability
                .notices
                .notify(NoticeKind::Health, "mail", text);
            return;
        }
    }
    let mut drain = app.drain.clone();
    loop {
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(LEASE_STEP) => {}
        }
        let is_empty = app.mail.lock().is_empty();
        if !is_empty && let Err(error) = change(&app, MailSubscriptions::count_down).await {
            tracing::warn!(%error, "cannot store the subscriptions by e-mail");
        }
    }
}

/// Changes the subscriptions on a thread that may wait for the disk.
///
/// # Errors
/// They cannot be stored.
pub(crate) async fn change<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&MailSubscriptions) -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let app = app.clone();
    let done = tokio::task::spawn_blocking(move || work(&app.mail)).await;
    done.map_err(|_| std::io::Error::other("the change panicked"))?
}

/// Follows one subscription until it is stopped, or ends.
async fn run(app: App, stored: Stored, mut stopped: watch::Receiver<bool>) {
    let mut drain = app.drain.clone();
    let ended = tokio::select! {
        // What waits to be sent is sent after the next start.
        () = shutdown(&mut drain) => return,
        _ = stopped.wait_for(|stopped| *stopped) => return,
        ended = send_all(&app, &stored) => ended,
    };
    let text = format!(
        "the subscription of {} by e-mail ended: {ended}",
        stored.account
    );
    app.observability
        .notices
        .notify(NoticeKind::Health, "mail", text);
    let id = stored.id.clone();
    if let Err(error) = change(&app, move |mail| mail.remove(&id)).await {
        tracing::warn!(%error, "cannot store the subscriptions by e-mail");
    }
}

/// Sends the mail of a subscription; returns why it ends.
async fn send_all(app: &App, stored: &Stored) -> String {
    let caller = match &stored.session {
        None => Ok(Caller::operator()),
        Some(session) => app.accounts.of_session(session),
    };
    let Ok(caller) = caller else {
        return FollowEnd::Account.to_string();
    };
    tokio::select! {
        () = app.accounts.ended(&caller) => FollowEnd::Account.to_string(),
        ended = send_as(app, stored, caller.clone()) => ended,
    }
}

/// Sends the mail of a subscription of this account.
async fn send_as(app: &App, stored: &Stored, caller: Caller) -> String {
    let mark = stored.mark.as_deref().and_then(|mark| mark.parse().ok());
    let start = mark.map_or(WatchStart::Present, WatchStart::After);
    let follow = Follow::start(app.clone(), caller.clone(), stored.about.subject(), start);
    let mut follow = match follow {
        Ok(follow) => follow,
        Err(error) => return error.to_string(),
    };
    let bundle = Duration::from_secs(u64::from(app.config.mail.bundle_s));
    let mut not_before = Instant::now();
    loop {
        let first = match follow.next().await {
            Ok(item) => item,
            Err(end) => return end.to_string(),
        };
        // What follows within a minute is the same mail.
        let until = not_before.max(Instant::now() + bundle);
        let mut bundled = Bundle::default();
        bundled.add(&first);
        // A group is sent as a whole.
        while bundled.is_open || Instant::now() < until {
            let next = match bundled.is_open {
                true => Ok(follow.next().await),
                false => timeout_at(until, follow.next()).await,
            };
            match next {
                Ok(Ok(item)) => bundled.add(&item),
                Ok(Err(end)) => return end.to_string(),
                Err(_) => break,
            }
        }
        bundled.retain_visible(app, &caller);
        if !bundled.lines.is_empty()
            && let Err(reason) = deliver(app, stored, &bundled).await
        {
            return reason;
        }
        not_before = Instant::now() + bundle;
        let mark = bundled.mark.map(|mark| mark.to_string());
        let id = stored.id.clone();
        let noted = change(app, move |mail| {
            mail.change(&id, |kept| {
                kept.stored.mark = mark.or(kept.stored.mark.take());
            })
        });
        if let Err(error) = noted.await {
            tracing::warn!(%error, "cannot store the subscriptions by e-mail");
        }
    }
}

async fn deliver(app: &App, stored: &Stored, bundled: &Bundle) -> Result<(), String> {
    let mail = &app.config.mail;
    let name = &app.identity.name;
    let subject = format!("{name}: {} changes of the registry", bundled.changes);
    let text = bundled.text(stored);
    for attempt in 0..ATTEMPTS_MAX {
        let sent = mailer::send(mail, &stored.mail, &subject, text.clone()).await;
        let Err(failure) = sent else { return Ok(()) };
        if attempt == 0 {
            let text = format!("not sent to {}: {}", stored.mail, failure.reason);
            let notices = &app.observability.notices;
            notices.notify(NoticeKind::Health, "mail", text);
        }
        if !failure.is_transient {
            return Err(failure.reason);
        }
        let pause = RETRY_PAUSE * 2_u32.pow(attempt);
        sleep_until(Instant::now() + pause).await;
    }
    Err(format!("{ATTEMPTS_MAX} attempts to send a mail failed"))
}

/// The changes of one mail.
#[derive(Default)]
struct Bundle {
    /// Each with the key of the entity that it names.
    lines: Vec<(Option<String>, String)>,
    changes: usize,
    mark: Option<Mark>,
    /// Within a group that is sent as a whole.
    is_open: bool,
}

impl Bundle {
    fn add(&mut self, item: &WatchItem) {
        self.is_open = item.mark.is_none();
        self.mark = item.mark.or(self.mark);
        let line = match &item.event {
            WatchEvent::Resync(reason) => {
                format!("All that there is now follows ({}):", reason.as_str())
            }
            WatchEvent::Synced => "That is all.".to_owned(),
            _ => {
                self.changes += 1;
                let (kind, data) = described(item);
                match (data["key"].as_str(), data["name"].as_str()) {
                    (Some(key), Some(name)) => format!("{kind}: {name} <{key}>"),
                    _ if data["row"].is_null() => format!("{kind}: {}", data["answer"]),
                    _ => format!("{kind}: {}", data["row"]),
                }
            }
        };
        if self.lines.len() < LISTED_MAX {
            // A name may have line breaks.
            let line = line.replace(['\r', '\n'], " ");
            let (_, data) = described(item);
            let key = data["key"].as_str().map(str::to_owned);
            self.lines.push((key, line.chars().take(500).collect()));
        }
    }

    /// Leaves out the entities that the subscriber may no longer see.
    fn retain_visible(&mut self, app: &App, caller: &Caller) {
        let now = match caller.session() {
            Some(session) => app.accounts.of_session(&session).ok(),
            None => Some(caller.clone()),
        };
        // An account that ended has an end of the subscription of its own.
        let Some(reader) = now.map(|caller| caller.reader()) else {
            return self.lines.clear();
        };
        let before = self.lines.len();
        self.lines.retain(|(key, _)| {
            let has = |key: &String, reader| app.registry.get(key, reader).is_some();
            let Some(key) = key else { return true };
            has(key, &reader) || !has(key, &Principal::Operator)
        });
        self.changes = self.changes.saturating_sub(before - self.lines.len());
    }

    fn text(&self, stored: &Stored) -> String {
        let lines: Vec<&str> = self.lines.iter().map(|(_, line)| line.as_str()).collect();
        let mut text = lines.join("\n");
        if self.changes > self.lines.len() {
            text.push_str(&format!("\nand {} more", self.changes - self.lines.len()));
        }
        text.push_str(&format!(
            "\n\n-- \nSubscription {} of the account {}; it ends unless it is renewed.\n",
            stored.id, stored.account
        ));
        text
    }
}
