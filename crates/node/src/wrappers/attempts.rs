//! The attempts of a wrapper or an exporter to run: why one ended, and when the next begins.

use std::time::Duration;

use chappe_log::{Error, Health};
use chappe_stream::StoreError;
use chappe_wrappers::WrapperError;
use tokio::sync::watch;

use super::pause::Pause;
use super::table::{Handle, PeerState, Row, Table};
use crate::notices::NoticeKind;
use crate::shared::App;

/// Time between two looks whether a full disk has room.
const ROOM_PERIOD: Duration = Duration::from_millis(250);

/// Why it ended.
pub(super) enum End {
    /// It shall end.
    Stopped,
    /// It is opened again.
    Storage(StoreError),
    Peer(WrapperError),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Storage(error)
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Storage(error.into())
    }
}

impl From<WrapperError> for End {
    fn from(error: WrapperError) -> Self {
        Self::Peer(error)
    }
}

impl End {
    /// The reason, and how to repair it.
    pub(super) fn reason(&self) -> (String, Option<String>) {
        match self {
            Self::Stopped => ("it was stopped".to_owned(), None),
            Self::Storage(error) => {
                let hint = "GET /ready shows whether the log accepts data".to_owned();
                (format!("cannot read or store: {error}"), Some(hint))
            }
            Self::Peer(error) => (error.to_string(), error.hint().map(str::to_owned)),
        }
    }
}

/// The attempts of one.
#[derive(Default)]
pub(super) struct Attempts {
    pause: Pause,
    /// The reason that a notice has reported.
    notified: Option<String>,
}

impl Attempts {
    /// An attempt ended, `has_worked` if it stored or wrote something: its row shows why, and a notice reports a reason
    /// that is not that of the attempt before, which is returned.
    pub(super) fn ended<R: Row, H: Handle>(
        &mut self,
        app: &App,
        table: &Table<R, H>,
        name: &str,
        end: &End,
        has_worked: bool,
    ) -> Option<String> {
        if has_worked {
            *self = Self::default();
        }
        let (reason, hint) = end.reason();
        let is_new = self.notified.as_ref() != Some(&reason);
        if is_new {
            let notices = &app.observability.notices;
            notices.notify(NoticeKind::Link, name, reason.clone());
            self.notified = Some(reason.clone());
        }
        let shown = reason.clone();
        table.update(name, |row| {
            let peer = row.peer_mut();
            peer.set_state(PeerState::Trouble, Some(shown), hint);
        });
        is_new.then_some(reason)
    }

    /// Waits for the next attempt after this `end`; true if `stop` became true. After a full disk it does not wait
    /// longer than until there is room: peers that repeat nothing go on sending.
    pub(super) async fn wait(
        &mut self,
        app: &App,
        end: &End,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        let log = &app.storage.log;
        let waiting = async {
            if matches!(end, End::Storage(_)) && log.health() == Health::Full {
                while log.health() == Health::Full {
                    tokio::time::sleep(ROOM_PERIOD).await;
                }
            } else {
                tokio::time::sleep(self.pause.next()).await;
            }
        };
        tokio::select! {
            () = waiting => false,
            _ = stop.wait_for(|stop| *stop) => true,
        }
    }
}
