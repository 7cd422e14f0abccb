# frozen_string_literal: true

# Checks that imports run one way, between the crates and inside them:
#
#     ruby bin/lib/layers.rb           fails on a circle of files, and on an import that runs up the layers
#     ruby bin/lib/layers.rb --order   prints an order of each crate's folders and files that its imports allow
#
# A parent may re-export its children's items; that is no import. Whoever imports such an item imports the file that
# defines it.

require_relative "rust_imports"
require "tsort"

class Layers
  # What a crate may import of the others, and its own folders and files (without .rs), bottom first. Those on one line
  # are one layer, and may import each other. lib.rs is above all of them.
  CRATES = {
    "crates/http" => [[], <<~ORDER],
      bytes chunk_encoder connection_options date error field_lines field_name reason span status transfer_codings
      chunk_extension framing limits target
      chunked
      app_chunks head response
      error_response
    ORDER
    "crates/sys" => [[], <<~ORDER],
      proc_stat
      app_user clock fatal_signals fd fd_limit memory process shared_memory signals stack thread_id
      fd_passing heap_holes socket thread
      own_descriptors sendfile stderr thread_turns wakeup
      poller
    ORDER
    "crates/engine" => [%w[fastrack_http fastrack_sys], <<~ORDER],
      clock fork request_state sync
      baton
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
    "crates/monitor" => [%w[fastrack_engine fastrack_sys], <<~ORDER],
      master process settings
      backlog
      view
      metrics status
      answer
      clients
      place
      monitor
    ORDER
    "ext/fastrack" => [%w[fastrack_http fastrack_sys fastrack_engine fastrack_monitor magnus rb_sys], <<~ORDER],
      ruby
      env
      request
      response
      app
      worker
    ORDER
  }.freeze

  OTHERS = %w[fastrack_http fastrack_sys fastrack_engine fastrack_monitor fastrack magnus rb_sys].freeze

  attr_reader :problems

  def initialize(root, crates = CRATES)
    @root = root
    @files = @imports = @circles = 0
    @problems = []
    @orders = {}
    crates.each { |crate, (allowed, layers)| check(crate, allowed, layers.lines.map(&:split)) }
  end

  def summary = "#{@files} Rust files, #{@imports} imports between them, circles #{@circles}"

  def orders = @orders.map { |crate, names| "#{crate}:\n#{names.map { |name| "  #{name}\n" }.join}" }

  private

  def check(crate, allowed, layers)
    source = File.join(@root, crate, "src")
    found = RustImports.new(File.join(@root, crate), OTHERS)
    within = found.edges.transform_values { |targets| targets.select { |target, _| target.end_with?(".rs") } }
    @files += found.files.size
    @imports += within.sum { |_, targets| targets.size }
    found.lost.each { |file| problem("#{path(file)} is declared by no `mod`") }
    check_crates(found.edges, allowed)
    check_circles(within, found.files)
    check_layers(within, found.files, layers, source)
    order(crate, within, found.files, source)
  end

  def check_crates(edges, allowed)
    edges.each do |file, targets|
      (targets.keys & OTHERS - allowed).each { |name| problem("#{path(file)}:#{targets[name]} must not import #{name}") }
    end
  end

  def check_circles(edges, files)
    components(files, edges).select { |component| component.size > 1 }.each do |component|
      @circles += 1
      problem("a circle of #{component.size} files: #{component.map { |file| path(file) }.sort.join(" ")}\n  " \
              "#{circle(component, edges)}")
    end
  end

  # The shortest way round: a:3 -> b:5 -> a.
  def circle(component, edges)
    chains = component.map { |start| shortest(start, component, edges) }
    chain = chains.min_by(&:size)
    steps = chain.each_cons(2).map { |from, to| "#{path(from)}:#{edges[from][to]} imports " }
    "#{steps.join}#{path(chain.last)}"
  end

  def shortest(start, component, edges)
    chains = [[start]]
    seen = {}
    while (chain = chains.shift)
      (edges.fetch(chain.last, {}).keys & component).each do |target|
        return chain + [target] if target == start

        chains << (chain + [target]) unless seen[target]
        seen[target] = true
      end
    end
  end

  def check_layers(edges, files, layers, source)
    heights = layers.each_with_index.flat_map { |names, height| names.map { |name| [name, height] } }.to_h
    names = files.map { |file| layer(file, source) }.uniq - ["lib"]
    (names - heights.keys).each { |name| problem("#{path(source)}: #{name} is in no layer, see CRATES in bin/lib/layers.rb") }
    (heights.keys - names).each { |name| problem("#{path(source)}: there is no #{name}, see CRATES in bin/lib/layers.rb") }
    heights["lib"] = layers.size
    edges.each do |file, targets|
      from = heights[layer(file, source)]
      targets.each do |target, line|
        to = heights[layer(target, source)]
        problem("#{path(file)}:#{line} imports #{path(target)}, which is above it") if from && to && from < to
      end
    end
  end

  # The folder right under src that a file is in, or the file's own name; conn.rs is in the folder conn.
  def layer(file, source) = file.delete_prefix("#{source}/").split("/").first.delete_suffix(".rs")

  def order(crate, edges, files, source)
    folders = Hash.new { |hash, name| hash[name] = {} }
    edges.each { |file, targets| targets.each_key { |target| folders[layer(file, source)][layer(target, source)] = true } }
    names = files.map { |file| layer(file, source) }.uniq.sort - ["lib"]
    @orders[crate] = components(names, folders).map { |component| component.sort.join(" ") } - ["lib"]
  end

  # Bottom first; those of one circle together.
  def components(nodes, edges)
    TSort.strongly_connected_components(nodes.method(:each), ->(node, &block) { edges.fetch(node, {}).each_key(&block) })
  end

  def path(file) = file.delete_prefix("#{@root}/")

  def problem(text) = @problems << text
end

if $PROGRAM_NAME == __FILE__
  layers = Layers.new(File.expand_path("../..", __dir__))
  if ARGV == ["--order"]
    puts layers.orders
  else
    puts layers.problems, layers.summary
    exit layers.problems.empty?
  end
end
