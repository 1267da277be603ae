//! Plots, as SVG for a page. The colours are visible on white and on black; the page replaces black in dark mode.

mod bars;
mod lines;

use super::axis::Axis;
pub use bars::{Bar, Bars, grouped_bars};
pub(crate) use bars::{bars, by_label, grouped_bars_in_parts};
pub use lines::{Reference, Series, course};
pub(crate) use lines::{cumulative, runs, tail};
use plotters::{
    coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
    style::RGBColor,
};
use std::{error::Error, ops::Range};

/// The width of a phone, so that text is legible there; the page scales plots on wider screens.
const WIDTH: u32 = 360;
const TEXT: (&str, u32) = ("sans-serif", 14);
/// Distinguishable with every kind of colour blindness (after Okabe and Ito), with a contrast of at least 3:1 to white
/// and near-black.
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x91, 0x6c),
    RGBColor(0xb8, 0x5c, 0x92),
    RGBColor(0x9a, 0x7d, 0x00),
    RGBColor(0x77, 0x77, 0x77),
];

/// An SVG drawing, and the unit of its labels.
#[derive(Debug)]
pub struct Plot {
    pub(crate) svg: String,
    pub(crate) unit: String,
}

type Drawn = Result<String, Box<dyn Error>>;

/// The colour of the `nth` file or line, in CSS notation.
pub fn colour(nth: usize) -> String {
    let RGBColor(r, g, b) = shade(nth);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The colours in turn; in every other turn, they are mixed with grey, and grey with a lighter one.
fn shade(nth: usize) -> RGBColor {
    let colour = COLOURS[nth % COLOURS.len()];
    let is_grey = colour.0 == colour.1 && colour.1 == colour.2;
    let with = if is_grey { 0xb2 } else { 0x80 };
    let mix = |part: u8| part / 2 + with / 2;
    match nth / COLOURS.len() % 2 {
        0 => colour,
        _ => RGBColor(mix(colour.0), mix(colour.1), mix(colour.2)),
    }
}

/// The axis chooses its ticks itself, because plotters does not know how wide a label is.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}
