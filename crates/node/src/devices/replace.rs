//! An operator replaces a device by another one, which continues its streams.

use std::collections::BTreeSet;
use std::io;

use super::lineage::has_left;
use super::places::{Place, place_of_stream};
use crate::notices::NoticeKind;
use crate::shared::App;

/// A device cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    #[error("{0} is not a device that is present")]
    Absent(String),
    #[error("a device cannot replace itself")]
    Itself,
    #[error("{0} has no streams")]
    NoStreams(String),
    #[error("{0} has streams of several places: {1}")]
    SeveralPlaces(String, String),
    #[error("{0} is still present")]
    Present(String),
    #[error("cannot keep the assignment: {0}")]
    File(#[from] io::Error),
}

/// Assigns the place of `former` to `device`, which must be present; `former` must be gone or left out. Without
/// `place`, all streams of `former` must have the same one.
///
/// # Errors
/// See [`ReplaceError`]; then nothing has changed.
pub(crate) async fn replace(
    app: &App,
    device: &str,
    former: &str,
    place: Option<String>,
) -> Result<Place, ReplaceError> {
    if device == former {
        return Err(ReplaceError::Itself);
    }
    if app.devices.is_absent(device) {
        return Err(ReplaceError::Absent(device.to_owned()));
    }
    let entries = app.catalogue.entries();
    let of_former = entries.iter().filter(|entry| entry.source() == former);
    let mut places: BTreeSet<&str> = of_former
        .map(|entry| place_of_stream(&entry.name))
        .collect();
    let assigned = app.devices.places.of(former);
    if let Some(place) = place.as_deref().or(assigned.as_deref()) {
        places.retain(|one| *one == place);
    }
    let mut found = places.iter();
    let place = match (found.next(), found.next()) {
        (None, _) => return Err(ReplaceError::NoStreams(former.to_owned())),
        (Some(place), None) => (*place).to_owned(),
        _ => {
            let places: Vec<&str> = places.into_iter().collect();
            return Err(ReplaceError::SeveralPlaces(
                former.to_owned(),
                places.join(", "),
            ));
        }
    };
    if !has_left(app, former) {
        return Err(ReplaceError::Present(former.to_owned()));
    }
    Ok(assign_to(app, place, device, former).await?)
}

/// Assigns a place to a device that continues it under another endpoint address.
pub(super) async fn assign(app: &App, place: String, device: &str, former: &str) {
    if let Err(error) = assign_to(app, place, device, former).await {
        let text = format!("cannot keep the assignment of its place: {error}");
        app.observability
            .notices
            .notify(NoticeKind::Device, device, text);
    }
}

async fn assign_to(app: &App, place: String, device: &str, former: &str) -> io::Result<Place> {
    let places = &app.devices.places;
    let assigned = places.assign(place, device.to_owned(), former.to_owned());
    let assigned = assigned.await?;
    let text = format!("{device} replaces {former} at {}", assigned.place);
    app.observability
        .notices
        .notify(NoticeKind::Device, device, text);
    Ok(assigned)
}
