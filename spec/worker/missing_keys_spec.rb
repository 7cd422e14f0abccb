# frozen_string_literal: true

# What Ruby may not have: figures of its garbage collector, whose names are not promised, and gems that were part of it.
RSpec.describe "A Ruby without" do
  # Takes a key away from GC.stat, GC.stat_heap, GC.latest_gc_info or GC.config, as Ruby does that does not know it.
  def without(method, key)
    <<~RUBY
      GC.singleton_class.prepend(Module.new do
        def #{method}(*given)
          raise ArgumentError, "unknown key: #{key}" if given.include?(:#{key})

          taken = ->(one) { one.is_a?(Hash) ? one.each_with_object(one.dup.clear) { |(name, value), left| left[name] = taken.call(value) unless name == :#{key} } : one }
          found = super
          given.grep(Hash).each { |one| one.replace(taken.call(one)) }
          taken.call(found)
        end
      end)
    RUBY
  end

  def serve(config, choice)
    app = <<~RUBY
      run ->(_) { 2_000.times { Object.new }; [200, {}, [GC.count.to_s]] }
    RUBY
    server = Server.start(ru: app, options: { MaxWorkers: 1, MaxRequestPerChild: 0, OobGC: choice, MinGCPerRequest: 2, MaxGCPerRequest: 2 }, config: config)
    expect(Array.new(60) { server.get.status }).to all(eq(200))
    # No worker was replaced for anything that it had raised.
    expect(server.log).not_to match(/failed|exited|Error/)
    server
  end

  # Keys without which `auto` cannot tell how full the heap is.
  needed = {
    stat: %i[malloc_increase_bytes malloc_increase_bytes_limit],
    stat_heap: %i[slot_size heap_eden_slots total_allocated_objects total_freed_objects],
    latest_gc_info: %i[state need_major_by]
  }
  told = /OobGC=auto acts as OobGC=true: Ruby #{RUBY_VERSION} does not tell how full its heap is/
  needed.each do |method, keys|
    keys.each do |key|
      it "#{key} of GC.#{method} serves with OobGC=auto, as with OobGC" do
        skip "there is none here" unless GC.respond_to?(method)

        expect(serve(without(method, key), "auto").log).to match(told)
      end
    end
  end

  it "need_major_by of GC.latest_gc_info, and rgengc_allow_full_mark of GC.config, serves with OobGC" do
    serve(without(:latest_gc_info, :need_major_by), true)
    serve(without(:config, :rgengc_allow_full_mark), true) if GC.respond_to?(:config)
  end

  it "heap_empty_pages of GC.stat serves with OobGC=auto" do
    serve(without(:stat, :heap_empty_pages), "auto")
  end

  it "GC.stat_heap and GC.total_time serves with OobGC=auto, as with OobGC" do
    config = "%i[stat_heap total_time].each { |name| GC.singleton_class.undef_method(name) if GC.respond_to?(name) }"
    expect(serve(config, "auto").log).to match(told)
  end

  # Since Ruby 4.0 a bundle has it only if it says so.
  it "the gem logger gives hooks a logger all the same" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~'RUBY')
      Object.send(:remove_const, :Logger) if defined?(Logger)
      Kernel.prepend(Module.new do
        private def require(name) = name == "logger" ? raise(LoadError, "cannot load such file -- logger") : super
      end)
      before_fork do |server, worker|
        log = server.logger
        log.info("forks #{worker.nr}")
        log.debug { "in a block" }
        log.level = :warn
        log.info("is below its level") unless log.info?
        log.error(RuntimeError.new("is an error"))
        log.add(5, "of no level")
        log << "as it is\n"
      end
    RUBY
    eventually(20, -> { server.log }) { server.log.include?("Fastrack is ready") }
    stamp = /\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6} ##{server.master}\]/
    expect(server.log).to match(/^I, #{stamp}  INFO -- : forks 0\nD, #{stamp} DEBUG -- : in a block\nE, #{stamp} ERROR -- : .*is an error \(RuntimeError\)$/)
    expect(server.log).to match(/^U, #{stamp} UNKNOWN -- : of no level\nas it is$/)
    expect(server.log).not_to include("below its level")
  end
end
