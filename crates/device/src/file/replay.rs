//! A recording as a sequence of events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_soap::schema::format_date_time;
use chappe_xml::Element;

use super::{Event, FieldSource, rows_per_event};

/// Produces the elements of an event in sequence.
///
/// ```
/// # use chappe_device::file::{File, Replay};
/// # let directory = tempfile::tempdir().unwrap();
/// # std::fs::write(directory.path().join("t.csv"), "celsius\n20.5\n21\n").unwrap();
/// # let text = "name='t'\nmanufacturer='e'\nmodel='m'\nnamespace='urn:t'\n[[event]]\nname='Report'\n\
/// #     period_ms=1000\nrecording='t.csv'\n[[event.field]]\nname='celsius'\ntype='double'\n";
/// # let file = File::parse(text, &directory.path().join("t.toml")).unwrap();
/// let mut replay = Replay::new(&file.events[0]);
/// let now = std::time::SystemTime::now();
/// assert_eq!(replay.next(now).unwrap().elements().next().unwrap().text(), "20.5");
/// assert_eq!(replay.next(now).unwrap().elements().next().unwrap().text(), "21");
/// assert_eq!(replay.next(now).unwrap().elements().next().unwrap().text(), "20.5");
/// ```
#[derive(Debug)]
pub struct Replay<'a> {
    event: &'a Event,
    row: usize,
    step: usize,
}

impl<'a> Replay<'a> {
    /// Starts at the first row.
    #[must_use]
    pub fn new(event: &'a Event) -> Self {
        let fields = event.element.fields.iter();
        let rows = fields.map(|field| rows_per_event(field, event.period));
        Self {
            event,
            row: 0,
            step: rows.max().unwrap_or(1),
        }
    }

    /// Time from one event to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.event.period
    }

    /// The next element, with the time `now`; `None` at the end of a recording that does not repeat. An
    /// incomplete last period is left out.
    pub fn next(&mut self, now: SystemTime) -> Option<Element> {
        let recording = &self.event.recording;
        if self.row + self.step > recording.rows() {
            if !self.event.repeat {
                return None;
            }
            self.row = 0;
        }
        let mut element = Element::new(self.event.element.name.clone())
            .with_namespace("", self.event.element.name.namespace.clone());
        let fields = self.event.element.fields.iter().zip(&self.event.sources);
        for (field, source) in fields {
            let text = match source {
                FieldSource::Clock => format_date_time(nanoseconds(now)),
                FieldSource::Column(column) => {
                    let count = rows_per_event(field, self.event.period);
                    let rows = self.row..self.row + count;
                    let cells: Vec<&str> = rows.map(|row| recording.cell(row, *column)).collect();
                    cells.join(" ")
                }
            };
            element = element.with_child(Element::new(field.name.clone()).with_text(text));
        }
        self.row += self.step;
        Some(element)
    }
}

fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
