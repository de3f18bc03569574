//! A stretch of time of a stream as a few buckets: count, least, greatest and mean of each numeric field.
//!
//! One pass over the stored records; memory is that of the buckets and of one span of the log. A chart
//! of a year takes as many points as it has pixels.

use std::ops::Range;

use crate::exact::Sum;
use crate::store::records::{Records, Stored};
use crate::{FieldType, StoreError, StreamLog, Timestamp};

/// Most buckets of a range.
pub const RANGE_BUCKETS_MAX: usize = 10_000;

/// A stretch of time in buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeBuckets {
    /// The start of the first bucket.
    pub from: Timestamp,
    /// The width of a bucket in nanoseconds.
    pub width_ns: u64,
    /// Elements in each bucket.
    pub counts: Vec<u64>,
    /// The numeric fields.
    pub fields: Vec<FieldBuckets>,
    /// Elements in all buckets.
    pub elements: u64,
    /// Damaged elements that may be missing.
    pub damaged: u64,
}

/// A field in buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldBuckets {
    /// Its name.
    pub name: String,
    /// Of each bucket; `None` when it has no value.
    pub buckets: Vec<Option<BucketValues>>,
}

/// The values of a field in a bucket. Booleans are 0 and 1; each sample of a waveform is a value at its
/// own time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketValues {
    /// How many.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

#[derive(Default)]
struct Values {
    count: u64,
    min: f64,
    max: f64,
    sum: Sum,
}

impl Values {
    fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum.add_real(value);
    }

    fn finish(&self) -> Option<BucketValues> {
        (self.count > 0).then(|| BucketValues {
            count: self.count,
            min: self.min,
            max: self.max,
            mean: self.sum.total() / self.count as f64,
        })
    }
}

impl StreamLog {
    /// The elements with a source time in `times`, in at most `buckets` buckets of equal width: all times
    /// that are kept when there are none. `None` when `is_stopped` returned true meanwhile; it is asked
    /// every few milliseconds.
    ///
    /// # Errors
    /// Elements that do not decode; an error of the log.
    pub fn range_buckets(
        &self,
        times: Range<Option<Timestamp>>,
        buckets: usize,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<RangeBuckets>, StoreError> {
        let kept = self.log().times().unwrap_or((0, 0));
        let from = times.start.map_or(kept.0, |time| time.0);
        let to = times.end.map_or(kept.1.saturating_add(1), |time| time.0);
        let span = i128::from(to) - i128::from(from);
        let buckets = i128::try_from(buckets.clamp(1, RANGE_BUCKETS_MAX)).unwrap_or(1);
        let span = span.max(0);
        let width = (span + buckets - 1).div_euclid(buckets).max(1);
        let count = usize::try_from((span + width - 1).div_euclid(width)).unwrap_or(0);
        let mut pass = Pass {
            from,
            width,
            counts: vec![0; count],
            fields: Vec::new(),
            last: None,
        };
        let records = Records::new(self);
        for (at, field) in records.schema().fields.iter().enumerate() {
            if !matches!(field.field_type, FieldType::Text | FieldType::Bytes) {
                let values = (0..count).map(|_| Values::default());
                pass.fields.push((at, values.collect()));
            }
        }
        let wanted = Some((from, to.saturating_sub(1)));
        let mut numbers: Option<(u64, u64)> = None;
        let mut elements = 0;
        if let Some(range) = records.numbers(wanted).filter(|_| count > 0) {
            let take = |number: u64, time: i64, payload: &[u8]| {
                let view = records.view(time, payload)?;
                elements += 1;
                numbers = Some((numbers.map_or(number, |numbers| numbers.0), number));
                pass.add(&records, &view)
            };
            if !records.each(range, wanted, is_stopped, take)? {
                return Ok(None);
            }
        }
        let (first, last) = numbers.unwrap_or((0, u64::MAX));
        let fields = pass.fields.iter().map(|(at, values)| FieldBuckets {
            name: records.schema().fields[*at].name.clone(),
            buckets: values.iter().map(Values::finish).collect(),
        });
        Ok(Some(RangeBuckets {
            from: Timestamp(from),
            width_ns: u64::try_from(width).unwrap_or(u64::MAX),
            fields: fields.collect(),
            counts: pass.counts,
            elements,
            damaged: self.damaged(first, last),
        }))
    }
}

struct Pass {
    from: i64,
    width: i128,
    counts: Vec<u64>,
    /// Field and values of each bucket.
    fields: Vec<(usize, Vec<Values>)>,
    /// Times of the newest bucket, and its place.
    last: Option<(i64, i64, usize)>,
}

impl Pass {
    /// The bucket of a time; `None` when it is outside of all.
    fn bucket(&mut self, time: i64) -> Option<usize> {
        // A division costs more than the rest of a record.
        if let Some((low, high, bucket)) = self.last
            && low <= time
            && time <= high
        {
            return Some(bucket);
        }
        let distance = i128::from(time) - i128::from(self.from);
        let bucket = usize::try_from(distance.div_euclid(self.width)).ok()?;
        if bucket >= self.counts.len() {
            return None;
        }
        let low = i128::from(self.from) + bucket as i128 * self.width;
        let high = i64::try_from(low + self.width - 1).unwrap_or(i64::MAX);
        self.last = Some((i64::try_from(low).ok()?, high, bucket));
        Some(bucket)
    }

    fn add(
        &mut self,
        records: &Records,
        view: &crate::store::records::RecordView<'_>,
    ) -> Result<(), StoreError> {
        let Some(bucket) = self.bucket(view.source_time) else {
            return Ok(());
        };
        self.counts[bucket] += 1;
        for field in 0..self.fields.len() {
            let value = records.value(view, self.fields[field].0)?;
            let number = match value {
                Stored::Boolean(value) => f64::from(u8::from(value)),
                Stored::Integer(value) => value as f64,
                Stored::Double(value) => value,
                Stored::Samples(samples) => {
                    for at in 0..samples.len() {
                        let sample = samples.value(at).zip(self.bucket(samples.time(at)));
                        if let Some((value, bucket)) = sample {
                            self.fields[field].1[bucket].add(value);
                        }
                    }
                    continue;
                }
                Stored::Null | Stored::Text(_) | Stored::Bytes(_) => continue,
            };
            self.fields[field].1[bucket].add(number);
        }
        Ok(())
    }
}
