//! Straight lines through points, as the paper draws them: by the number, or by its logarithm.

/// `y = offset + slope * x`, and how much of the spread it explains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fit {
    pub(super) offset: f64,
    pub(super) slope: f64,
    pub(super) r_squared: f64,
}

/// The line of least squares.
pub(super) fn line(points: &[(f64, f64)]) -> Fit {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|it| it.0), mean(|it| it.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| of(x - x_mean, y - y_mean)).sum()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    let r_squared = if xx > 0.0 && yy > 0.0 {
        xy * xy / (xx * yy)
    } else {
        1.0
    };
    Fit {
        offset: y_mean - slope * x_mean,
        slope,
        r_squared,
    }
}

/// The line over the binary logarithm of `x + 1`.
pub(super) fn logarithm(points: &[(f64, f64)]) -> Fit {
    let points: Vec<_> = points.iter().map(|(x, y)| ((x + 1.0).log2(), *y)).collect();
    line(&points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found() {
        let straight: Vec<_> = (1..20)
            .map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x)))
            .collect();
        let fit = line(&straight);
        assert!((fit.offset - 3.0).abs() < 1e-9 && (fit.slope - 2.0).abs() < 1e-9);
        assert!(fit.r_squared > 0.999_999);
        assert!(logarithm(&straight).r_squared < 0.95);
        let bent: Vec<_> = (1..20)
            .map(|x| (f64::from(x), 5.0 * f64::from(x + 1).log2()))
            .collect();
        assert!((logarithm(&bent).slope - 5.0).abs() < 1e-9);
    }
}
