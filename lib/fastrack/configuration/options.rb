# frozen_string_literal: true

require "socket"
require_relative "../listener/address"
require_relative "../proxy"
require_relative "option"
require_relative "warm_up_pages"

module Fastrack
  # Every option, Rhebok's first.
  class Option
    # Most threads of a worker. Larger values of RAILS_MAX_THREADS and of a puma.rb count as this one.
    MOST_THREADS = 64

    # Most streams of a worker.
    MOST_STREAMS = 1000

    # Streams of a worker with several threads, if the user sets no number. A worker with one thread has none, because the app may not be
    # thread-safe.
    USUAL_STREAMS = 256

    ALL = [
      new(:ConfigFile, :config_file, nil, "configuration file, in Ruby", :path),
      new(:Host, :host, "0.0.0.0", "address to listen on", :text),
      new(:Port, :port, 9292, "port to listen on (0: any free port)", :integer, 0..65_535),
      new(:Path, :path, nil, "unix socket to listen on, instead of Host and Port", :text),
      new(:BackLog, :backlog, Socket::SOMAXCONN, "length of the listen queue", :integer, 1..2_147_483_647),
      new(:ReusePort, :reuseport, false, "set SO_REUSEPORT on the listening socket", :boolean),
      new(:MaxWorkers, :max_workers, 5, "number of worker processes; auto: what CPUs and memory allow", :workers),
      new(:MaxRequestPerChild, :max_request_per_child, 1000, "replace a worker after this many requests (0: never)", :integer, 0..),
      new(:MinRequestPerChild, :min_request_per_child, nil, "each worker draws its limit between this and MaxRequestPerChild", :integer, 0..),
      new(:ClientTimeout, :client_timeout, 300.0, "seconds to wait for a client (the default of the timeouts below)", :seconds),
      new(:OobGC, :oobgc, false, "run the garbage collector between requests; auto: when nobody waits", :boolean_or, "auto"),
      new(:MaxGCPerRequest, :max_gc_per_request, 5, "requests between two out-of-band collections", :integer, 1..),
      new(:MinGCPerRequest, :min_gc_per_request, nil, "each worker draws that number between this and MaxGCPerRequest", :integer, 1..),
      new(:ChunkedTransfer, :chunked_transfer, false, "send bodies of unknown length chunked", :boolean),
      new(:SpawnInterval, :spawn_interval, 0.0, "seconds between two worker spawns", :seconds_or_zero),
      new(:ErrRespawnInterval, :err_respawn_interval, 1.0, "seconds to wait before a failed worker is replaced", :seconds_or_zero),
      new(:BeforeFork, :before_fork, nil, "called in the master before each fork", :callable),
      new(:Refork, :refork, false, "fork the workers anew from one that has served, when that saves memory", :boolean),
      new(:BeforeRefork, :before_refork, nil, "called in the worker from which workers are to be forked", :callable),
      new(:WarmUp, :warm_up, nil, "paths to ask the app for before the first fork; true: those of a Rails app that all have", WarmUpPages.method(:list)),
      new(:WarmUpTime, :warm_up_time, 5.0, "seconds that the warm-up may take", :seconds),
      new(:WarmUpRequired, :warm_up_required, false, "whether code that fails in the warm-up is refused; connections: also code that leaves connections open",
          :boolean_or, "connections"),
      new(:AfterFork, :after_fork, nil, "called in each worker after the fork", :callable),
      new(:PathInfo, :path_info, "encoded", "PATH_INFO as it was sent (encoded), or decoded as in Rhebok", :choice, "encoded", "decoded"),
      new(:MaxBodySize, :max_body_size, nil, "largest request body, in bytes (10M)", :bytes, 0..),
      new(:StreamBody, :stream_body, false, "call the app before the whole request body has arrived", :boolean),
      new(:MaxRequestTarget, :max_request_target, 16_384, "longest request target, in bytes", :bytes, 1..1_048_576),
      new(:MaxHeaderSize, :max_header_size, 65_536, "longest request line and headers, in bytes", :bytes, 1..1_048_576),
      new(:MaxHeaderFields, :max_header_fields, 128, "most headers in a request", :integer, 1..1024),
      new(:KeepAlive, :keep_alive, true, "keep connections open between requests", :boolean),
      new(:KeepAliveTimeout, :keep_alive_timeout, 95.0, "seconds to keep an idle connection open", :seconds),
      new(:KeepAliveRequests, :keep_alive_requests, 0, "most requests on one connection (0: no limit)", :integer, 0..4_294_967_295),
      new(:HeaderTimeout, :header_timeout, nil, "seconds to receive the request headers", :seconds),
      new(:BodyTimeout, :body_timeout, nil, "seconds between two reads of the request body", :seconds),
      new(:WriteTimeout, :write_timeout, nil, "seconds between two writes of the response", :seconds),
      new(:ResponseBuffer, :response_buffer, 1_048_576, "response bytes to buffer while the app goes on", :bytes, 0..),
      new(:MaxResponseSpool, :max_response_spool, 1_073_741_824, "bytes beyond that to keep in a file for a slow client (512M; 0: none)", :size, 0),
      new(:HandOver, :hand_over, true, "hand connections of busy workers to idle ones", :boolean),
      new(:GracefulTimeout, :graceful_timeout, 30.0, "seconds that a worker gets to finish when it is told to stop", :seconds_or_zero),
      new(:Linger, :linger, 300.0, "seconds that a replaced worker keeps streams and sockets that the app has taken over (0: none)", :seconds_or_zero),
      new(:DrainDelay, :drain_delay, 0.0, "seconds to keep serving after TERM", :seconds_or_zero),
      new(:WorkerBootTimeout, :worker_boot_timeout, 60.0, "seconds that a worker gets to boot (0: no limit)", :seconds_or_zero),
      new(:WorkerTimeout, :worker_timeout, 60.0, "seconds that a worker may stand still, outside of requests (0: no limit)", :seconds_or_zero),
      new(:BootTimeout, :boot_timeout, 120.0, "seconds that a new master gets to boot after USR2", :seconds),
      new(:AutoQuit, :auto_quit, true, "stop the old master once the new one is ready", :boolean),
      new(:BeforeExec, :before_exec, nil, "called before a new master is started", :callable),
      new(:Pid, :pid, nil, "pid file of the master", :path),
      new(:ControlPath, :control_path, nil, "unix socket of the monitor (none: no socket)", :path_or_none),
      new(:ControlListen, :control_listen, nil, "read-only port of the monitor, such as 127.0.0.1:9394; needs ControlToken", :ip_port),
      new(:ControlToken, :control_token, nil, "token that clients of ControlListen must send", :token),
      new(:Listen, :listen, nil, "addresses to listen on, instead of Host, Port and Path", Address.method(:list)),
      new(:MaxQueueTime, :max_queue_time, 0.0, "seconds that a request may wait for the app, then it gets 503 (0: no limit)", :seconds_or_zero),
      new(:RequestStart, :request_start, nil, "give each request an X-Request-Start if it has none (default: for Rails)", :boolean),
      new(:RequestTimeout, :request_timeout, 60.0, "seconds that the app may take for a request (0: no limit)", :seconds_or_zero),
      new(:PreloadApp, :preload_app, true, "load the app once, in the master", :boolean),
      new(:WorkingDirectory, :working_directory, nil, "directory to run in", :path),
      new(:StdoutPath, :stdout_path, nil, "log file for stdout", :path),
      new(:StderrPath, :stderr_path, nil, "log file for stderr", :path),
      new(:AccessLog, :access_log, nil, "file for the access log (-: stdout)", :path),
      new(:AccessLogFormat, :access_log_format, "combined", "format of the access log", :choice, "combined", "json"),
      new(:Timings, :timings, false, "measure where the time of each request goes", :boolean),
      new(:LogSlow, :log_slow, 0.0, "log each request that takes longer than this many seconds, while it does (0: none)", :seconds_or_zero),
      new(:ServerTiming, :server_timing, false, "tell clients where the time of their request has gone (Server-Timing)", :boolean),
      new(:LogFormat, :log_format, nil, "format of the server's own lines", :choice, "plain", "timestamp", "json"),
      new(:Umask, :umask, nil, "umask, in octal", :mode),
      new(:User, :user, nil, "user, or user:group, that workers run as", :user_group),
      new(:Logger, :logger, nil, "server.logger in hooks", :logger),
      new(:AfterWorkerReady, :after_worker_ready, nil, "called in each worker when it is ready", :callable),
      new(:BeforeWorkerShutdown, :before_worker_shutdown, nil, "called in each worker when it has served, before at_exit hooks", :callable),
      new(:AfterWorkerExit, :after_worker_exit, nil, "called in generation 0 when a worker has exited", :callable),
      new(:EarlyHints, :early_hints, false, "let the app send 103 Early Hints", :boolean),
      new(:MaxThreads, :max_threads, 1, "threads per worker that run requests", :integer, 1..MOST_THREADS),
      new(:MaxStreams, :max_streams, nil, "streams per worker that hold no thread of MaxThreads (256 with several threads, else 0)", :integer, 0..MOST_STREAMS),
      new(:StreamTimeout, :stream_timeout, 0.0, "seconds that a stream may last (0: no limit)", :seconds_or_zero),
      new(:OnThreadStart, :on_thread_start, nil, "called in each thread before its first request", :callable),
      new(:OnThreadExit, :on_thread_exit, nil, "called in each thread when it ends", :callable),
      new(:AutoIdleTime, :auto_idle_time, 3600.0, "seconds without need after which MaxWorkers=auto takes a worker away (0: never)", :seconds_or_zero),
      new(:MaxMemoryPerChild, :max_memory_per_child, nil, "replace a worker that takes more memory (300M; 0: never)", :memory),
      new(:MaxMemory, :max_memory, nil, "memory of all processes, beyond which the largest worker is replaced (0: no limit)", :memory, 0),
      new(:DefaultMiddleware, :default_middleware, true, "let `fastrack` add rackup's middleware to the app", :boolean),
      new(:LowlevelErrorHandler, :lowlevel_error_handler, nil, "makes the response when the app raises", :callable),
      new(:TLSDomains, :tls_domains, nil, "domains whose certificate comes by ACME, for ssl:// without cert", :domains),
      new(:ACMEServer, :acme_server, "production", "directory of the ACME authority: production and staging are Let's Encrypt's", :text),
      new(:ACMEFolder, :acme_folder, nil, "folder of the ACME account and its certificates", :path),
      new(:ACMEContact, :acme_contact, nil, "mail address for the ACME authority", :text),
      new(:ACMEAccount, :acme_account, nil, "id and key of an account elsewhere (external account binding), as ID:KEY", :token_pair),
      new(:PublicFiles, :public_files, nil, "folder whose files are answered without the app (none: the app answers)", :path_or_none),
      new(:CacheControl, :cache_control, nil, "a pattern of paths of files, and their Cache-Control", :cache_rules),
      new(:PublicFileHeaders, :public_file_headers, nil, "fields of all responses with a file of PublicFiles", :fields),
      new(:PublicLinks, :public_links, nil, "folders to which links in PublicFiles may lead", :paths),
      new(:SendfileRoot, :sendfile_root, nil, "folder of the files that the app may name in X-Sendfile", :path),
      new(:Compress, :compress, nil, "compress the app's responses, and files (default: if there is a proxy)", :boolean),
      new(:ForceSSL, :force_ssl, false, "redirect from ports without TLS to the one with TLS", :boolean),
      new(:ForceSSLExcept, :force_ssl_except, nil, "patterns of paths that ForceSSL does not redirect", :path_patterns),
      new(:H2C, :h2c, false, "let clients without TLS speak HTTP/2", :boolean),
      new(:TrustedProxies, :trusted_proxies, nil, "networks whose X-Forwarded-For names the client, such as 10.0.0.0/8 or private", :networks),
      new(:ProxyUser, :proxy_user, nil, "user, or user:group, that the proxy runs as (default: User)", :user_group),
      new(:ProxyThreads, :proxy_threads, nil, "threads of the proxy (default: one for each CPU, at most 4)", :integer, 1..64),
      new(:MaxSSLRate, :max_ssl_rate, nil, "TLS handshakes a second that the proxy begins (default: as many as come)", :integer, 1..1_000_000)
    ].freeze

    # Rhebok's names.
    ALIASES = { Chunked_Transfer: :ChunkedTransfer, Timeout: :ClientTimeout }.freeze

    BY_NAME = ALL.to_h { |option| [option.name, option] }
                 .then { |options| options.merge(ALIASES.transform_values { |name| options.fetch(name) }) }.freeze

    # Second words for an option: Unicorn's `worker_processes`, and Rhebok's `timeout`, which limits the app in a unicorn.rb.
    OTHER_WORDS = { worker_processes: :MaxWorkers, timeout: :ClientTimeout }.freeze

    BY_WORD = ALL.to_h { |option| [option.word, option] }
                 .merge(OTHER_WORDS.transform_values { |name| BY_NAME.fetch(name) }).freeze

    DEFAULTS = ALL.to_h { |option| [option.name, option.default] }.freeze

    # A reader for each option, with the option's word. `@values` has the values by option name.
    module Readers
      (ALL - BY_NAME.values_at(:MaxStreams, :Timings)).each { |option| define_method(option.word) { @values.fetch(option.name) } }

      # @return [Integer]
      def max_streams = @values.fetch(:MaxStreams) || (max_threads > 1 ? USUAL_STREAMS : 0)

      # @return [Boolean] whether several threads of a worker call the app
      def multithread? = max_threads > 1 || max_streams.positive?

      # @return [Boolean] whether the time of each request is divided
      def timings = @values.fetch(:Timings) || server_timing || log_slow.positive?

      # @return [Array<Address>] where to listen
      def addresses
        given = listen || [path ? Address.new(path: path) : Address.new(host: host, port: port)]
        given = given.map { |address| address.with_defaults(backlog: backlog, reuseport: reuseport) }
        proxy? ? [*given, Proxy.inner_address(self)] : given
      end

      # @return [Boolean] whether a proxy faces the clients of all ports: see Proxy
      def proxy?
        compress || h2c || [public_files, sendfile_root].any? || Array(listen).any? { |one| one.tls? || one.proxy_protocol? }
      end
    end

    # @param key [Symbol, String] either spelling: MaxWorkers or max_workers
    # @return [Option, nil]
    def self.find(key) = BY_NAME[key.to_sym] || BY_WORD[key.to_sym]
  end
end
