//! Tells the program how it is optimised: only a build script knows the compiler's level.

fn main() {
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=NACRE_OPT_LEVEL={level}");
    println!("cargo::rerun-if-changed=build.rs");
}
