package io.plimsoll.opensearch;

import io.plimsoll.Plimsoll;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.opensearch.action.support.ActionFilter;
import org.opensearch.cluster.metadata.IndexNameExpressionResolver;
import org.opensearch.cluster.service.ClusterService;
import org.opensearch.common.lifecycle.LifecycleComponent;
import org.opensearch.common.settings.ClusterSettings;
import org.opensearch.common.settings.Setting;
import org.opensearch.core.common.io.stream.NamedWriteableRegistry;
import org.opensearch.core.xcontent.NamedXContentRegistry;
import org.opensearch.env.Environment;
import org.opensearch.env.NodeEnvironment;
import org.opensearch.index.IndexModule;
import org.opensearch.plugins.ActionPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.repositories.RepositoriesService;
import org.opensearch.script.ScriptService;
import org.opensearch.secure_sm.AccessController;
import org.opensearch.tasks.TaskResourceTrackingService;
import org.opensearch.threadpool.ThreadPool;
import org.opensearch.transport.client.Client;
import org.opensearch.watcher.ResourceWatcherService;

/**
 * Keeps a ledger of the node: every request of a client is a task, with what it takes of the heap, of the processors and of the threads that search, and can be cancelled.
 *
 * <p>The node never notices. Where nothing can be accounted its log says so, once; where anything else fails, what it concerns goes unaccounted.
 */
public final class PlimsollPlugin extends Plugin implements ActionPlugin {
    /** What the application is called in the ledger, and in the agent's configuration. */
    public static final Setting<String> APP = Setting.simpleString("plimsoll.app", "opensearch", PlimsollPlugin::checkName, Setting.Property.NodeScope);

    private static final Setting<Boolean> TRACKS = TaskResourceTrackingService.TASK_RESOURCE_TRACKING_ENABLED;
    private static final Logger LOG = LogManager.getLogger(PlimsollPlugin.class);

    /** Null before there is one, and where it could not be made. */
    private Keeper keeper;

    /** As OpenSearch makes it. */
    public PlimsollPlugin() {}

    @Override
    public List<Setting<?>> getSettings() {
        return List.of(APP);
    }

    @Override
    public Collection<Object> createComponents(Client client, ClusterService clusterService, ThreadPool threadPool, ResourceWatcherService resourceWatcherService,
            ScriptService scriptService, NamedXContentRegistry xContentRegistry, Environment environment, NodeEnvironment nodeEnvironment,
            NamedWriteableRegistry namedWriteableRegistry, IndexNameExpressionResolver indexNameExpressionResolver, Supplier<RepositoriesService> repositoriesServiceSupplier) {
        try {
            String name = APP.get(environment.settings());
            Plimsoll app = AccessController.doPrivileged(() -> Plimsoll.open(name));
            keeper = new Keeper(app, threadPool.info(ThreadPool.Names.SEARCH).getMax(), new NodeThreads(), new NodeCancel(client));
            sayWhatIsMissing(clusterService.getClusterSettings());
            return List.of(keeper);
        } catch (RuntimeException | LinkageError e) {
            LOG.warn("nothing is accounted", e);
            return List.of();
        }
    }

    /** OpenSearch counts itself what threads do for a task; where it does not, nobody knows. */
    private static void sayWhatIsMissing(ClusterSettings settings) {
        AtomicBoolean said = new AtomicBoolean();
        Consumer<Boolean> say = tracks -> {
            if (!tracks && said.compareAndSet(false, true)) {
                LOG.warn("{} is false: what requests take of the heap and of the processors is not accounted, only which have the threads that search", TRACKS.getKey());
            }
        };
        say.accept(settings.get(TRACKS));
        settings.addSettingsUpdateConsumer(TRACKS, say);
    }

    @Override
    public Collection<Class<? extends LifecycleComponent>> getGuiceServiceClasses() {
        return keeper == null ? List.of() : List.of(NodeTasks.class);
    }

    @Override
    public List<ActionFilter> getActionFilters() {
        return keeper == null ? List.of() : List.of(new RequestFilter(keeper));
    }

    @Override
    public void onIndexModule(IndexModule indexModule) {
        if (keeper != null) {
            indexModule.addSearchOperationListener(new PhaseListener(keeper.searchThreads()));
        }
    }

    @Override
    public void close() {
        if (keeper != null) {
            AccessController.doPrivileged(keeper::close);
        }
    }

    private static void checkName(String name) {
        try {
            Plimsoll.of(name);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("plimsoll.app: " + e.getMessage(), e);
        }
    }
}
