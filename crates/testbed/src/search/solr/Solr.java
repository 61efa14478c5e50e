import java.util.EnumSet;
import javax.servlet.DispatcherType;
import org.apache.solr.servlet.CoreContainerProvider;
import org.apache.solr.servlet.SolrDispatchFilter;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.DefaultServlet;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

/** What Solr's own start script runs: Jetty, with Solr at /solr. Prints its port when it listens. */
public class Solr {
  public static void main(String[] arguments) throws Exception {
    int threads = Integer.getInteger("solr.jetty.threads.max", 10000);
    Server server = new Server(new QueuedThreadPool(threads, Math.min(threads, 10), 120000));
    HttpConfiguration http = new HttpConfiguration();
    http.setRequestHeaderSize(65536);
    ServerConnector connector =
        new ServerConnector(server, new HttpConnectionFactory(http), new HTTP2CServerConnectionFactory(http));
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[0]));
    server.addConnector(connector);
    ServletContextHandler solr = new ServletContextHandler(server, "/solr", ServletContextHandler.SESSIONS);
    solr.addEventListener(new CoreContainerProvider());
    solr.addFilter(SolrDispatchFilter.class, "/*", EnumSet.of(DispatcherType.REQUEST));
    solr.addServlet(DefaultServlet.class, "/*");
    server.start();
    System.out.println("HTTP Port: " + connector.getLocalPort());
    server.join();
  }
}
