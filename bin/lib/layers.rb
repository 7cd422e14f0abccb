# frozen_string_literal: true

# Checks that imports run one way between the folders and files right under a crate's src: ruby bin/lib/layers.rb fails on one that
# runs up. Between crates the compiler sees to it (Cargo.toml). It looks for `crate::` and as many `super::` as lead out of the folder,
# in code and in `use`; what is behind `#[cfg(test)]` at the end of a file, and what is re-exported by lib.rs, does not count.
module Layers
  ROOT = File.expand_path("../..", __dir__)

  # Bottom first. Those on one line are one layer, and may import each other. lib.rs is above all of them.
  CRATES = {
    "crates/http" => <<~ORDER,
      bytes chunk_encoder connection_options date error field_lines field_name reason span status transfer_codings
      chunk_extension framing limits target
      chunked
      app_chunks head response
      error_response
    ORDER
    "crates/sys" => <<~ORDER,
      clock fatal_signals fd fd_limit listen_queue memory process processors priority shared_memory signals thread_id trusted_path
      fd_passing own_descriptors socket
      sendfile stderr wakeup
      poller
    ORDER
    "crates/engine" => <<~ORDER,
      clock fork sync watch
      access_log control
      accept
      settings
      conn
      app
      handoff
      reactor
      helper
      worker
    ORDER
    "crates/monitor" => <<~ORDER,
      master process settings
      view
      metrics status
      answer
      clients
      place
      monitor
    ORDER
    "ext/fastrack" => <<~ORDER
      ruby
      env
      request
      response
      app
      worker
    ORDER
  }.freeze

  module_function

  # @return [Array<String>] what is wrong
  def problems(root = ROOT, crates = CRATES)
    crates.flat_map do |crate, order|
      heights = order.lines.flat_map.with_index { |line, height| line.split.map { |name| [name, height] } }.to_h
      source = File.join(root, crate, "src")
      files = Dir.glob("**/*.rs", base: source).sort - ["lib.rs"]
      unknown = files.map { |file| layer(file) }.uniq - heights.keys
      unknown.map { |name| "#{crate}: #{name} is in no layer, see CRATES in bin/lib/layers.rb" } +
        files.flat_map { |file| upward(File.read(File.join(source, file)), file, heights).map { |to| "#{crate}/src/#{file} imports #{to}, which is above it" } }
    end
  end

  def layer(file) = file[%r{\A[^/.]+}]

  def upward(text, file, heights)
    own = heights.fetch(layer(file), 0)
    imported(text, file).uniq.select { |name| heights.fetch(name, 0) > own }
  end

  # Names right under the crate that a file imports.
  def imported(text, file)
    # A file of a folder is one `super` further down, mod.rs is the folder.
    depth = file.count("/") + (file.end_with?("/mod.rs") ? 0 : 1)
    code = text.sub(/^#\[cfg\(test\)\]\s*mod tests \{.*\z/m, "").gsub(%r{//[^\n]*}, "")
    code.scan(/\b(?:crate|#{Array.new(depth, "super").join("::")})::(\w+|\{[^;]*)/).flatten.flat_map do |found|
      found.start_with?("{") ? found.gsub(/::\{[^{}]*\}/, "").scan(/[{,]\s*(\w+)/).flatten : [found]
    end
  end
end

if $PROGRAM_NAME == __FILE__
  problems = Layers.problems
  puts problems, "layers: #{problems.size} imports that run up"
  exit problems.empty?
end
