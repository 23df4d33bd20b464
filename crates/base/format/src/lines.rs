//! [`out!`](crate::out), [`outln!`](crate::outln) and [`errln!`](crate::errln): text on standard output and standard error.
//!
//! The standard library's macros panic when the text cannot be written, as after `| head` has seen enough or the terminal is gone: a
//! daemon would end there, and a tool half-way.

use std::fmt::Arguments;
use std::io::Write;

/// As `print!`, but the text is lost where nobody can read it.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => {
        $crate::write_text(&mut ::std::io::stdout(), ::core::format_args!($($text)*))
    };
}

/// As `println!`, but the line is lost where nobody can read it.
#[macro_export]
macro_rules! outln {
    ($($line:tt)*) => {
        $crate::out!("{}\n", ::core::format_args!($($line)*))
    };
}

/// As `eprintln!`, but the line is lost where nobody can read it.
#[macro_export]
macro_rules! errln {
    ($($line:tt)*) => {
        $crate::write_text(&mut ::std::io::stderr(), ::core::format_args!("{}\n", ::core::format_args!($($line)*)))
    };
}

/// What the macros are made of.
pub fn write_text(to: &mut impl Write, text: Arguments<'_>) {
    let _nobody_reads = to.write_fmt(text);
}
