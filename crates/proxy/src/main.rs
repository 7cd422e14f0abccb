//! The program. All of it is a library, so that the fuzz targets can reach its parts.

fn main() -> std::process::ExitCode {
    fastrack_proxy::main()
}
