# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../bin/lib/layers"
require "fileutils"
require "tmpdir"

# The check of imports, on crates made up for it.
RSpec.describe Layers, once: "a tool" do
  # @param files [Hash] text by path below the crate's src
  # @return [Array<String>] the problems found
  def problems(files, order: "bottom middle top", allowed: [])
    Dir.mktmpdir do |dir|
      files.each do |path, text|
        file = File.join(dir, "crate/src", path)
        FileUtils.mkdir_p(File.dirname(file))
        File.write(file, text)
      end
      Layers.new(dir, { "crate" => [allowed, order.split.join("\n")] }).problems
    end
  end

  def crate(**texts)
    files = { bottom: "pub struct Bottom;", middle: "", top: "", **texts }
    files.transform_keys { |name| "#{name}.rs" }.merge("lib.rs" => "mod bottom; mod middle; mod top;\npub use top::Top;")
  end

  it "takes imports that run down the layers" do
    expect(problems(crate(middle: "use crate::bottom::Bottom;", top: "use crate::{bottom::Bottom, middle};"))).to eq([])
  end

  it "names the files of a circle, and the way round" do
    circle = problems(crate(bottom: "use crate::top::Top;", top: "\nuse super::bottom::Bottom;")).first
    expect(circle).to start_with("a circle of 2 files: crate/src/bottom.rs crate/src/top.rs\n")
    expect(circle).to include("crate/src/bottom.rs:1 imports crate/src/top.rs:2 imports crate/src/bottom.rs")
  end

  it "finds an import that runs up the layers, be it a path in the code" do
    ["use crate::top::Top;", "fn a() { crate::top::a() }", "fn a() -> super::top::Top {}", "use crate::top as t;\nfn b() { t::a() }"]
      .each do |text|
        expect(problems(crate(middle: text))).to eq(["crate/src/middle.rs:1 imports crate/src/top.rs, which is above it"]), text
      end
  end

  it "follows re-exports to the file that defines the item" do
    files = crate(bottom: "use crate::Top;", top: "pub struct Top;")
    expect(problems(files)).to eq(["crate/src/bottom.rs:1 imports crate/src/top.rs, which is above it"])
    folder = { "lib.rs" => "mod bottom; mod top;", "bottom.rs" => "mod child;\npub(crate) use child::{self, Child};",
               "bottom/child.rs" => "use super::other; pub struct Child;", "top.rs" => "use crate::bottom::Child;" }
    expect(problems(folder, order: "bottom top")).to eq([])
  end

  it "finds a circle of a parent that uses its child and is used by it" do
    files = { "lib.rs" => "mod a;", "a.rs" => "mod child;\nuse child::Child;\npub struct A(Child);",
              "a/child.rs" => "use super::A;\npub struct Child;" }
    expect(problems(files, order: "a").first).to start_with("a circle of 2 files")
    files["a.rs"] = "mod child;\npub use child::Child;\npub struct A;"
    expect(problems(files, order: "a")).to eq([])
  end

  it "leaves out tests, comments, strings and the names of visibilities" do
    text = <<~RUST
      // use crate::top::Top;
      /* /* */ use crate::top::Top; */
      const A: &str = "crate::top::a"; const B: &[u8] = br#""crate::top"#; const C: char = '"';
      pub(in crate::top) fn a<'a>() {}
      #[cfg(test)]
      use crate::top::Top;
      #[cfg(all(test, unix))]
      fn b(_: [u8; 2]) { crate::top::a() }
      #[cfg(test)]
      mod tests { use super::*; use crate::top::Top; }
    RUST
    expect(problems(crate(middle: text))).to eq([])
    files = crate(middle: "#[cfg(test)]\nmod tests;").merge("middle/tests.rs" => "use crate::top::Top;")
    expect(problems(files)).to eq([])
  end

  it "wants each file in a layer, and each layer to be there" do
    expect(problems(crate, order: "bottom top")).to contain_exactly(/middle is in no layer/)
    expect(problems(crate, order: "bottom middle top attic")).to contain_exactly(/there is no attic/)
    expect(problems(crate.merge("lost.rs" => ""))).to eq(["crate/src/lost.rs is declared by no `mod`"])
  end

  it "finds imports of other crates" do
    files = crate(middle: "use fastrack_engine::App;", top: "fn a() { rb_sys::rb_gc() }")
    expect(problems(files)).to contain_exactly("crate/src/middle.rs:1 must not import fastrack_engine",
                                               "crate/src/top.rs:1 must not import rb_sys")
    expect(problems(files, allowed: %w[fastrack_engine rb_sys])).to eq([])
  end
end
