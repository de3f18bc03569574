//! Figures as the study drew them: loads over time, and rates side by side.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 60.0;
const COLOURS: [&str; 4] = ["#1b5e8c", "#d98e2b", "#4f8f4f", "#8c3b5e"];

/// What is drawn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure {
    /// What it shows.
    pub(crate) title: String,
    /// The unit upwards.
    pub(crate) unit: &'static str,
    /// The names along the bottom, for bars; none for lines over seconds.
    pub(crate) names: Vec<String>,
    /// Each with its name.
    pub(crate) series: Vec<(String, Vec<f64>)>,
}

impl Figure {
    /// Groups of bars, one group a name, one bar a series.
    pub(crate) fn bars(&self) -> String {
        let mut svg = self.frame();
        let groups = self.names.len().max(1) as f64;
        let width = (WIDTH - LEFT - RIGHT) / groups;
        let bar = width * 0.8 / self.series.len().max(1) as f64;
        for (group, name) in self.names.iter().enumerate() {
            let left = LEFT + width * group as f64;
            for (number, (_, values)) in self.series.iter().enumerate() {
                let value = values.get(group).copied().unwrap_or(0.0);
                let (x, y) = (left + width * 0.1 + bar * number as f64, self.y(value));
                let (height, colour) = (HEIGHT - BOTTOM - y, COLOURS[number % COLOURS.len()]);
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{height:.1}\" \
                     fill=\"{colour}\"/>"
                );
                if self.names.len() <= 12 {
                    let (x, y) = (x + bar / 2.0, y - 3.0);
                    let _ = write!(
                        svg,
                        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" \
                         font-size=\"9\">{value:.0}</text>"
                    );
                }
            }
            let x = left + width / 2.0;
            for (line, word) in name.split('\n').enumerate() {
                let y = HEIGHT - BOTTOM + 14.0 + 11.0 * line as f64;
                let _ = write!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" \
                     font-size=\"9\">{word}</text>"
                );
            }
        }
        svg + "</svg>"
    }

    /// A line for each series, a value a second.
    pub(crate) fn lines(&self) -> String {
        let mut svg = self.frame();
        let longest = self.series.iter().map(|(_, values)| values.len()).max();
        let last = longest.unwrap_or(0).saturating_sub(1).max(1);
        let x = |second: usize| LEFT + second as f64 / last as f64 * (WIDTH - LEFT - RIGHT);
        for (number, (_, values)) in self.series.iter().enumerate() {
            let point =
                |(second, value): (usize, &f64)| format!("{:.1},{:.1}", x(second), self.y(*value));
            let points: Vec<_> = values.iter().enumerate().map(point).collect();
            let (points, colour) = (points.join(" "), COLOURS[number % COLOURS.len()]);
            let _ = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" \
                 points=\"{points}\"/>"
            );
        }
        let y = HEIGHT - BOTTOM + 14.0;
        for second in [0, last] {
            let x = x(second);
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{second} s</text>"
            );
        }
        svg + "</svg>"
    }

    fn top(&self) -> f64 {
        let values = self.series.iter().flat_map(|(_, values)| values);
        values.copied().fold(0.0, f64::max).max(1e-9)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top() * (HEIGHT - TOP - BOTTOM)
    }

    /// Title, legend, and the axis upwards.
    fn frame(&self) -> String {
        let (title, unit) = (&self.title, self.unit);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" \
             fill=\"white\"/><text x=\"{LEFT}\" y=\"18\">{title}</text>"
        );
        for (number, (name, _)) in self.series.iter().enumerate() {
            let (x, colour) = (
                LEFT + 200.0 * number as f64,
                COLOURS[number % COLOURS.len()],
            );
            let text = x + 12.0;
            let _ = write!(
                svg,
                "<rect x=\"{x}\" y=\"25\" width=\"9\" height=\"9\" fill=\"{colour}\"/>\
                 <text x=\"{text}\" y=\"34\">{name}</text>"
            );
        }
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let value = self.top() * share;
            let (y, right, left) = (self.y(value), WIDTH - RIGHT, LEFT - 6.0);
            let (below, digits) = (y + 4.0, usize::from(self.top() < 10.0) * 2);
            let _ = write!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ccc\"/>\
                 <text x=\"{left}\" y=\"{below:.1}\" text-anchor=\"end\">{value:.digits$}</text>"
            );
        }
        let (x, y) = (WIDTH - RIGHT, 18.0);
        let _ = write!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{unit}</text>"
        );
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_what_they_are_given() {
        let figure = Figure {
            title: "rates".to_owned(),
            unit: "1/s",
            names: vec!["a".to_owned(), "b\nc".to_owned()],
            series: vec![
                ("x".to_owned(), vec![1.0, 2.0]),
                ("y".to_owned(), vec![3.0]),
            ],
        };
        assert_eq!(figure.bars().matches("<rect").count(), 1 + 2 + 4);
        assert_eq!(figure.lines().matches("<polyline").count(), 2);
        let empty = Figure::default();
        assert!(empty.bars().ends_with("</svg>") && empty.lines().ends_with("</svg>"));
    }
}
